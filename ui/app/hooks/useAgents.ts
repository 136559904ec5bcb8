import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo, useState } from "react";
import { ApiError } from "~/api/client";
import { agentListQuery, POLL_MS, policiesQuery, SLOW_POLL_MS, SMALL_FLEET, versionsQuery } from "~/api/queries";
import type { AgentList } from "~/api/types";
import { newest } from "~/util/version";
import { useStreamState } from "./useEvents";

/**
 * useAgents reads all agents, or those that a query finds, and keeps them fresh: often if there
 * are few or the stream is down. Events do not say whether an agent matches a query, so the result
 * of a query is always read often.
 */
export function useAgents(showInactive: boolean, kuery?: string) {
  const live = useStreamState() === "live";
  const list = useQuery({
    ...agentListQuery(showInactive, kuery),
    refetchInterval: ({ state }) => {
      if (isRefusal(state.error)) return false; // the same query would be refused again
      return live && !kuery && (state.data?.items.length ?? 0) > SMALL_FLEET ? SLOW_POLL_MS : POLL_MS;
    },
  });
  // A query that fails has no data, although the page still shows the rows of the one before.
  const [last, setLast] = useState<AgentList>();
  if (list.data && list.data !== last) setLast(list.data);
  const fault = kuery && isRefusal(list.error) ? list.error : null;
  return { list, data: list.data ?? last, fault };
}

function isRefusal(error: unknown): error is ApiError {
  return error instanceof ApiError && error.statusCode === 400;
}

export function usePolicyName(): (id: string) => string {
  const { data } = useQuery(policiesQuery);
  const names = useMemo(() => new Map(data?.map((p) => [p.id, p.name])), [data]);
  return useCallback((id: string) => names.get(id) ?? id, [names]);
}

export function useNewestVersion(): string | undefined {
  const { data } = useQuery(versionsQuery);
  return useMemo(() => (data ? newest(data) : undefined), [data]);
}
