import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { rolloutsQuery } from "~/api/queries";

/** useRolloutNames returns the names of the newest rollouts by id, for texts that have only the id. */
export function useRolloutNames(): ReadonlyMap<string, string> {
  const { data } = useQuery({ ...rolloutsQuery, refetchInterval: false });
  return useMemo(() => new Map(data?.items.map((r) => [r.id, r.plan.name])), [data]);
}
