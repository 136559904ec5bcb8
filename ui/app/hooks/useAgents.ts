/** Facts that several pages show of agents. */
import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";
import { policiesQuery, versionsQuery } from "~/api/queries";
import { newest } from "~/util/version";

export function usePolicyName(): (id: string) => string {
  const { data } = useQuery(policiesQuery);
  const names = useMemo(() => new Map(data?.map((p) => [p.id, p.name])), [data]);
  return useCallback((id: string) => names.get(id) ?? id, [names]);
}

export function useNewestVersion(): string | undefined {
  const { data } = useQuery(versionsQuery);
  return useMemo(() => (data ? newest(data) : undefined), [data]);
}
