/** Queries and changes of webhooks and of what they could not deliver. */
import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { call } from "./client";
import { keys, POLL_MS } from "./queries";

export const LETTERS_PER_PAGE = 50;

export const webhooksQuery = queryOptions({
  queryKey: keys.webhooks,
  queryFn: async ({ signal }) => (await call("get", "/api/v1/webhooks", { signal })).items,
  refetchInterval: POLL_MS,
});

export const deadLettersQuery = (page: number) =>
  queryOptions({
    queryKey: [...keys.deadLetters, page] as const,
    queryFn: ({ signal }) => call("get", "/api/v1/dead_letters", { query: { page, perPage: LETTERS_PER_PAGE }, signal }),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
  });

const at = (webhookId: string) => ({ path: { webhookId } });

/** Without events: all of rollouts, groups and incidents except progress. Without a secret the server makes one. */
export const createWebhook = async (hook: { name: string; url: string; events: string[]; secret: string }, why: string) =>
  (
    await call("post", "/api/v1/webhooks", {
      body: { name: hook.name, url: hook.url, events: hook.events.length > 0 ? hook.events : undefined, secret: hook.secret || undefined },
      why,
    })
  ).item;

export const deleteWebhook = (id: string, why: string) => call("delete", "/api/v1/webhooks/{webhookId}", { ...at(id), why });

export const testWebhook = (id: string) => call("post", "/api/v1/webhooks/{webhookId}/test", at(id));

export const enableWebhook = (id: string, on: boolean) =>
  call("post", on ? "/api/v1/webhooks/{webhookId}/enable" : "/api/v1/webhooks/{webhookId}/disable", at(id));

export const redeliver = (letterId: string) => call("post", "/api/v1/dead_letters/{letterId}/redeliver", { path: { letterId } });
