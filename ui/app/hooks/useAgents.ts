import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";
import { agentListQuery, POLL_MS, policiesQuery, SLOW_POLL_MS, SMALL_FLEET, versionsQuery } from "~/api/queries";
import { newest } from "~/util/version";
import { useStreamState } from "./useEvents";

/** useAgents reads the fleet and keeps it fresh: often while the fleet is small or the stream is down. */
export function useAgents(showInactive: boolean) {
  const live = useStreamState() === "live";
  return useQuery({
    ...agentListQuery(showInactive),
    refetchInterval: (query) =>
      live && (query.state.data?.items.length ?? 0) > SMALL_FLEET ? SLOW_POLL_MS : POLL_MS,
  });
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
