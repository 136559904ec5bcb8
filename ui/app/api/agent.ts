/** Queries and changes of one agent: its diagnostics and its tags. */
import { queryOptions } from "@tanstack/react-query";
import { call } from "./client";
import { keys, POLL_MS } from "./queries";

export const uploadsQuery = (id: string) =>
  queryOptions({
    queryKey: [...keys.agent(id), "uploads"] as const,
    queryFn: async ({ signal }) => (await call("get", "/api/fleet/agents/{agentId}/uploads", { path: { agentId: id }, signal })).items,
    refetchInterval: POLL_MS,
  });

export const deleteUpload = (fileId: string) => call("delete", "/api/fleet/agents/files/{fileId}", { path: { fileId } });

export const setTags = (id: string, tags: string[]) => call("put", "/api/fleet/agents/{agentId}", { path: { agentId: id }, body: { tags } });
