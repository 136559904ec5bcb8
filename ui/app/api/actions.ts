/** Actions: what was ordered of agents, newest first, and how far it is. */
import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import type { ActivitySearch } from "~/util/activity/activitySearch";
import { call } from "./client";
import { keys, POLL_MS } from "./queries";
import type { ActionHostState } from "./types";

/** The server does not count actions: a page that is not full is the last one. */
export const ACTIONS_PER_PAGE = 50;
/** Errors shown of each action; its causes count all. */
const ERRORS = 20;

export const actionsQuery = ({ type, by, outcome, page = 1 }: ActivitySearch) =>
  queryOptions({
    queryKey: [...keys.actions, { type, by, outcome, page }] as const,
    queryFn: async ({ signal }) =>
      // The API counts these pages from 0, as Kibana's does.
      (
        await call("get", "/api/fleet/agents/action_status", {
          query: { page: page - 1, perPage: ACTIONS_PER_PAGE, errorSize: ERRORS, type, createdBy: by, outcome },
          signal,
        })
      ).items,
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
  });

/** One action, by its id. */
export const actionQuery = (id: string) =>
  queryOptions({
    queryKey: [...keys.actions, "one", id] as const,
    queryFn: async ({ signal }) => (await call("get", "/api/v1/actions/{actionId}", { path: { actionId: id }, query: { errorSize: ERRORS }, signal })).item,
    refetchInterval: POLL_MS,
  });

export const ACTION_HOSTS_PER_PAGE = 25;

export const actionHostsQuery = (id: string, state: ActionHostState | undefined, page: number) =>
  queryOptions({
    queryKey: [...keys.actions, "hosts", id, state, page] as const,
    queryFn: ({ signal }) =>
      call("get", "/api/v1/actions/{actionId}/agents", {
        path: { actionId: id },
        query: { state: state && [state], page, perPage: ACTION_HOSTS_PER_PAGE },
        signal,
      }),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
  });

export const cancelAction = (actionId: string, why: string) =>
  call("post", "/api/fleet/agents/actions/{actionId}/cancel", { path: { actionId }, why: why || undefined });
