/** The hosts of an order: named ones, or all that match a query. */
import type { Agent } from "~/api/types";

/** All agents that a query selects. */
export interface Matching {
  kuery: string;
  /** Includes inactive and unenrolled agents. */
  inactive: boolean;
  /** The number of agents when they were selected. */
  count: number;
}

/** The agents of an order. */
export type Chosen = readonly Agent[] | Matching;

export function isMatching(chosen: Chosen): chosen is Matching {
  return !Array.isArray(chosen);
}

export function countOf(chosen: Chosen): number {
  return isMatching(chosen) ? chosen.count : chosen.length;
}

export interface Selection {
  agents: string[] | string;
  includeInactive?: boolean;
}

/** selectionOf returns the agents for a request: ids, or the query. */
export function selectionOf(chosen: Chosen): Selection {
  return isMatching(chosen) ? { agents: chosen.kuery, includeInactive: chosen.inactive } : { agents: chosen.map((a) => a.id) };
}

/** Above this many hosts an order is confirmed by typing what happens to how many. */
export const TYPED_ABOVE = 100;

/** typedFor is what the operator types: without separators, which some keyboards lack. */
export const typedFor = (verb: string, count: number): string | undefined => (count > TYPED_ABOVE ? `${verb} ${count} hosts` : undefined);
