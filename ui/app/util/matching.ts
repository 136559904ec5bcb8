/** Orders for all agents that match, instead of for those that are named. */
import type { Agent } from "~/api/types";
import { quoted } from "./kql";
import type { AgentsSearch } from "./search";
import { HIDDEN_GROUPS, statusesOf } from "./status";

/** All agents that a query selects. */
export interface Matching {
  kuery: string;
  /** Inactive and unenrolled ones too. */
  inactive: boolean;
  /** How many there were when it was chosen. */
  count: number;
}

/** What an order is for. */
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

/** selectionOf is what a preview is asked for. */
export function selectionOf(chosen: Chosen): Selection {
  return isMatching(chosen) ? { agents: chosen.kuery, includeInactive: chosen.inactive } : { agents: chosen.map((a) => a.id) };
}

/** The query that means every agent; the empty one is refused, so that nothing never means all. */
const EVERYTHING = "*";

export type Order = { kuery: string } | { why: string };

/**
 * orderOf is the query of an order for all that a search shows: that of the list
 * itself, and the filters written behind it. Where no query means the same, it
 * says why: an order must never be for more than is shown.
 */
export function orderOf(search: AgentsSearch): Order {
  if (search.q) return { why: "Clear the text filter first: it only narrows what this page has loaded." };
  if (search.ids) return { why: "These agents were chosen one by one: select them in the table." };
  const parts = filtersOf(search);
  if (!parts) return { why: "Show inactive agents first, or clear the status filter." };
  if (parts.length === 0) return { kuery: search.kuery ?? EVERYTHING };
  if (search.kuery) parts.unshift(`(${search.kuery})`);
  return { kuery: parts.join(" and ") };
}

function filtersOf({ status = [], version, policy, action, inactive }: AgentsSearch): string[] | null {
  const parts: string[] = [];
  if (status.length > 0) {
    // A query that names a hidden status selects its agents, though the list does not show them.
    if (!inactive && status.some((g) => HIDDEN_GROUPS.includes(g))) return null;
    parts.push(`status: (${status.flatMap(statusesOf).join(" or ")})`);
  }
  if (version) parts.push(`agent.version: ${quoted(version)}`);
  if (policy) parts.push(`policy_id: ${quoted(policy)}`);
  if (action) parts.push(`upgrade_details.action_id: ${quoted(action)}`);
  return parts;
}
