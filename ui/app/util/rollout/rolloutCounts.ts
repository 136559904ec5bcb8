/** Sums and limits from the counts of a rollout. */
import type { Counts, Exposure, Plan, TargetState } from "~/api/types";
import { type GridGroup, groupLook } from "~/util/grid/gridClass";
import { plural } from "~/util/words";

export const badOf = (c: Counts) => c.failed + c.rolled_back;
/** Hosts that could not be given the version: they are skipped, and the rollout has failed all the same. */
export const refusedOf = (c: Counts) => c.refused ?? 0;

/** failedText is "3 failed, 2 refused"; undefined if there are none of either. */
export function failedText(c: Counts): string | undefined {
  const parts = [badOf(c) > 0 ? `${badOf(c).toLocaleString()} failed` : "", refusedOf(c) > 0 ? `${refusedOf(c).toLocaleString()} refused` : ""].filter(Boolean);
  return parts.length > 0 ? parts.join(", ") : undefined;
}

export const inFlightOf = (c: Counts) => c.offered + c.upgrading + c.verifying;
export const isBreaking = (p: Plan) => p.migration?.type === "breaking";

/** The groups of the grid in the order of a bar: what is done first, what has not begun last. */
export const BAR_GROUPS: readonly GridGroup[] = ["committed", "watching", "upgrading", "rolled_back", "failed", "skipped", "waiting", "scheduled"];

/** groupCounts counts targets by the groups of the grid. */
export const groupCounts = (c: Counts): Record<GridGroup, number> =>
  Object.fromEntries(BAR_GROUPS.map((g) => [g, groupLook[g].states.reduce((n, s) => n + c[s], 0)])) as Record<GridGroup, number>;

/** The percentage of targets that are done, rounded down so that 100 means all. */
export function percentOver(c: Counts): number {
  if (c.total === 0) return 0;
  return Math.floor(((c.total - c.pending - c.held - inFlightOf(c)) * 100) / c.total);
}

/** exposedText says how much of the fleet runs a version that is still limited. */
export function exposedText(e: Exposure): string {
  return `${e.exposed.toLocaleString()} of ${e.fleet.toLocaleString()} hosts, at most ${e.limit.toLocaleString()} allowed`;
}

/** provedText returns when the exposure limit no longer applies. */
export function provedText(e: Exposure): string {
  const left = e.needed_hours - e.healthy_hours;
  if (left <= 0) return "The limit no longer applies";
  const words = left < 1 ? plural(Math.ceil(left * 60), "minute") : `${left.toFixed(1)} hours`;
  return `${words} until the limit no longer applies`;
}

export function percent(n: number): string {
  return `${Number.isInteger(n) ? n : n.toFixed(1)} %`;
}

export const TARGET_STATES: readonly TargetState[] = [
  "pending",
  "held",
  "offered",
  "upgrading",
  "verifying",
  "succeeded",
  "failed",
  "rolled_back",
  "withdrawn",
  "skipped",
  "expired",
  "cancelled",
];
