/** Sums and limits from the counts of a rollout. */
import type { Counts, Exposure, Plan, Rollout, TargetState } from "~/api/types";
import { plural } from "./words";

export const badOf = (c: Counts) => c.failed + c.rolled_back;
export const inFlightOf = (c: Counts) => c.offered + c.upgrading + c.verifying;
/** Targets that were upgraded or failed. */
export const attemptedOf = (c: Counts) => c.succeeded + badOf(c);
export const isBreaking = (p: Plan) => p.migration?.type === "breaking";

/** The parts of a bar, in the order of a target's states. */
export const PARTS = ["done", "verifying", "upgrading", "offered", "bad", "out", "waiting"] as const;
export type Part = (typeof PARTS)[number];

export const partLabel: Record<Part, string> = {
  done: "upgraded", verifying: "being watched", upgrading: "upgrading", offered: "offered", bad: "failed", out: "skipped or withdrawn", waiting: "waiting",
};

export function partsOf(c: Counts): Record<Part, number> {
  return {
    done: c.succeeded,
    verifying: c.verifying,
    upgrading: c.upgrading,
    offered: c.offered,
    bad: badOf(c),
    out: c.withdrawn + c.skipped + c.expired + c.cancelled,
    waiting: c.pending + c.held,
  };
}

/** barLabel describes a bar for screen readers, without empty parts. */
export function barLabel(c: Counts): string {
  const parts = partsOf(c);
  const said = PARTS.filter((p) => parts[p] > 0).map((p) => `${parts[p].toLocaleString()} ${partLabel[p]}`);
  return said.length > 0 ? said.join(", ") : "no targets";
}

/** The percentage of targets that are done, rounded down so that 100 means all. */
export function percentOver(c: Counts): number {
  if (c.total === 0) return 0;
  return Math.floor(((c.total - c.pending - c.held - inFlightOf(c)) * 100) / c.total);
}

export interface Gauge {
  value: number;
  limit: number;
  /** The limit is reached or passed: the rollout pauses. */
  over: boolean;
  text: string;
  /** The numbers beside the title, if they are not plain counts. */
  figure?: string;
}

/** failureGauges returns the limits of the failure rule: either one pauses the rollout. */
export function failureGauges(r: Rollout): Gauge[] {
  const rule = r.plan.failure ?? {};
  if (r.plan.strategy.force_continue || r.forced) return [];
  const bad = Math.max(0, badOf(r.counts) - (r.forgiven ?? 0));
  const attempted = attemptedOf(r.counts);
  const gauges: Gauge[] = [];
  const count = rule.count ?? (rule.percent === undefined || rule.percent === null ? DEFAULT_FAILURE_COUNT : undefined);
  if (count !== undefined && count !== null) {
    const limit = Math.max(1, count); // 0 pauses at the first one too
    gauges.push({ value: bad, limit, over: bad >= limit, text: `${bad} failed, pauses at ${limit}` });
  }
  if (rule.percent !== undefined && rule.percent !== null) {
    const share = attempted === 0 ? 0 : (bad * 100) / attempted;
    gauges.push({ value: share, limit: rule.percent, over: share > rule.percent, figure: `${percent(share)} / ${percent(rule.percent)}`, text: `${percent(share)} of ${attempted} attempted failed, pauses above ${percent(rule.percent)}` });
  }
  return gauges;
}

/** The server's default. */
const DEFAULT_FAILURE_COUNT = 3;

export function exposureGauge(e: Exposure): Gauge {
  return { value: e.exposed, limit: e.limit, over: e.exposed >= e.limit && e.healthy_hours < e.needed_hours, text: `${e.exposed.toLocaleString()} of ${e.fleet.toLocaleString()} agents, at most ${e.limit.toLocaleString()} allowed` };
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

/** Sums by state, largest first, for the phases of targets in flight. */
export function countBy<T>(items: readonly T[], of: (item: T) => string): [string, number][] {
  const sums = new Map<string, number>();
  for (const item of items) sums.set(of(item), (sums.get(of(item)) ?? 0) + 1);
  return [...sums].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
}

export const TARGET_STATES: readonly TargetState[] = [
  "pending", "held", "offered", "upgrading", "verifying", "succeeded", "failed", "rolled_back", "withdrawn", "skipped", "expired", "cancelled",
];

export function isTargetState(word: unknown): word is TargetState {
  return typeof word === "string" && (TARGET_STATES as readonly string[]).includes(word);
}
