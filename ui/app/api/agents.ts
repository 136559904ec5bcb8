/** Queries of agents: a page of the list, counts by facet, what happened to one, and failures. The server filters, sorts and counts. */
import { infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";
import { call } from "./client";
import { keys, POLL_MS } from "./queries";

/** A screen and a half of compact rows. */
export const AGENTS_PER_PAGE = 50;
/** The server returns no agents beyond this one; a query narrows the list. */
export const AGENTS_REACHABLE = 10_000;

export interface AgentsPageInput {
  kuery?: string;
  showInactive?: boolean;
  /** A field of the API, such as local_metadata.host.hostname. */
  sortField: string;
  desc?: boolean;
  page: number;
  perPage?: number;
}

export const agentsPageQuery = ({ kuery, showInactive, sortField, desc, page, perPage = AGENTS_PER_PAGE }: AgentsPageInput) =>
  queryOptions({
    queryKey: [...keys.agentPages, { kuery, showInactive, sortField, desc, page, perPage }] as const,
    queryFn: ({ signal }) =>
      call("get", "/api/fleet/agents", { query: { kuery, showInactive, sortField, sortOrder: desc ? "desc" : "asc", page, perPage }, signal }),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
    retry: false,
  });

/** The exact number of agents that match. */
export const agentTotalQuery = (kuery: string | undefined, showInactive = false) =>
  queryOptions({
    queryKey: [...keys.agentPages, "total", { kuery, showInactive }] as const,
    queryFn: async ({ signal }) => (await call("get", "/api/fleet/agents", { query: { perPage: 0, kuery, showInactive }, signal })).total,
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
    retry: false,
  });

export const facetsQuery = (kuery: string | undefined, showInactive = false, fields?: string) =>
  queryOptions({
    queryKey: [...keys.facets, { kuery, showInactive, fields }] as const,
    queryFn: ({ signal }) => call("get", "/api/v1/agents/facets", { query: { kuery, showInactive, fields }, signal }),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
    retry: false,
  });

/** exportUrl is the address of the CSV file of the agents that match. */
export function exportUrl(kuery: string | undefined, showInactive: boolean | undefined, columns?: readonly string[]): string {
  const query = new URLSearchParams();
  if (kuery) query.set("kuery", kuery);
  if (showInactive) query.set("showInactive", "true");
  if (columns?.length) query.set("columns", columns.join(","));
  const text = query.toString();
  return `/api/v1/agents/export${text ? `?${text}` : ""}`;
}

/** What happened to an agent, newest first; older pages follow on demand. */
export const timelineQuery = (id: string, component?: string) =>
  infiniteQueryOptions({
    queryKey: [...keys.timeline(id), { component }] as const,
    queryFn: ({ signal, pageParam }) =>
      call("get", "/api/v1/agents/{agentId}/timeline", { path: { agentId: id }, query: { component, before: pageParam }, signal }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (last) => last.next,
    refetchInterval: POLL_MS,
  });

export const failuresQuery = (kuery?: string) =>
  queryOptions({
    queryKey: [...keys.failures, { kuery }] as const,
    queryFn: ({ signal }) => call("get", "/api/v1/failures", { query: { kuery }, signal }),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
  });
