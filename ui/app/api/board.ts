/** Queries of the list of rollouts and of the rollout board. The server pages and filters; only the grid has all targets, in a compact form. */
import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { sameGrid } from "~/util/board/boardGrid";
import { call } from "./client";
import { keys, POLL_MS } from "./queries";
import type { RolloutGrid, RolloutState, StrategyKind, TargetState } from "./types";

export const ROLLOUTS_PER_PAGE = 50;

export interface RolloutsFilter {
  state?: RolloutState[];
  kind?: StrategyKind[];
}

export const rolloutsPageQuery = ({ state, kind }: RolloutsFilter, page: number) =>
  queryOptions({
    queryKey: [...keys.rollouts, "page", { state, kind, page }] as const,
    queryFn: ({ signal }) => call("get", "/api/v1/rollouts", { query: { state, kind, page, perPage: ROLLOUTS_PER_PAGE }, signal }),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
  });

export const gridQuery = (id: string) =>
  queryOptions({
    queryKey: keys.grid(id),
    queryFn: ({ signal }) => call("get", "/api/v1/rollouts/{rolloutId}/grid", { path: { rolloutId: id }, signal }),
    // The lists of 100,000 targets are compared as lists of words, which is faster than in general.
    structuralSharing: (old, fresh) => sameGrid(old as RolloutGrid | undefined, fresh as RolloutGrid),
    refetchInterval: POLL_MS,
  });

export const TARGETS_PER_PAGE = 50;

export interface TargetsFilter {
  states?: TargetState[];
  batch?: number;
  code?: string;
  /** The id of one agent, whose target is shown alone. */
  agent?: string;
  page: number;
}

/** targetsPageQuery reads a page of targets. With an agent the other filters do not count. */
export const targetsPageQuery = (id: string, { states, batch, code, agent, page }: TargetsFilter) =>
  queryOptions({
    queryKey: [...keys.targets(id), "page", { states, batch, code, agent, page }] as const,
    queryFn: ({ signal }) =>
      call("get", "/api/v1/rollouts/{rolloutId}/targets", {
        path: { rolloutId: id },
        signal,
        query: agent === undefined ? { state: states, batch, code, page, perPage: TARGETS_PER_PAGE } : { agent },
      }),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
  });
