/** Actions for all agents that match a query, instead of for named agents. */
import type { Agent } from "~/api/types";
import { quoted } from "./kql";
import type { AgentsSearch } from "./search";
import { HIDDEN_GROUPS, statusesOf } from "./status";

/** All agents that a query selects. */
export interface Matching {
  kuery: string;
  /** Includes inactive and unenrolled agents. */
  inactive: boolean;
  /** The number of agents when they were selected. */
  count: number;
}

/** The agents of an action. */
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

/** The query that selects every agent. The empty query is refused, so that it never selects all by mistake. */
const EVERYTHING = "*";

export type Order = { kuery: string } | { why: string };

/**
 * orderOf returns the query that selects all agents of a search: the query of the list and the
 * page's filters. If no query selects the same agents, it returns the reason: an action must never
 * be for more agents than are shown.
 */
export function orderOf(search: AgentsSearch): Order {
  if (search.q) return { why: "Clear the text filter first: it applies only to the agents loaded here." };
  if (search.ids) return { why: "These agents were selected one by one: select them in the table." };
  const parts = filtersOf(search);
  if (!parts) return { why: "Show inactive agents first, or clear the status filter." };
  if (parts.length === 0) return { kuery: search.kuery ?? EVERYTHING };
  if (search.kuery) parts.unshift(`(${search.kuery})`);
  return { kuery: parts.join(" and ") };
}

function filtersOf({ status = [], version, policy, action, inactive }: AgentsSearch): string[] | null {
  const parts: string[] = [];
  if (status.length > 0) {
    // A query that names a hidden status selects agents that the list does not show.
    if (!inactive && status.some((g) => HIDDEN_GROUPS.includes(g))) return null;
    parts.push(`status: (${status.flatMap(statusesOf).join(" or ")})`);
  }
  if (version) parts.push(`agent.version: ${quoted(version)}`);
  if (policy) parts.push(`policy_id: ${quoted(policy)}`);
  if (action) parts.push(`upgrade_details.action_id: ${quoted(action)}`);
  return parts;
}
