/** The rollout board in words: how far a rollout is, what it waits for, how it has ended, and how canaries compare. */
import type { Batch, Counts, Rollout, RolloutPace, Target } from "~/api/types";
import { badOf, inFlightOf, refusedOf } from "~/util/rollout/rolloutCounts";
import { codeText, whyCode } from "~/util/rollout/rolloutText";
import { duration, hourMinute } from "~/util/time";
import { plural, sentence } from "~/util/words";
import { batchNow } from "./commandText";

/** batchLine returns "Batch 3 of 9"; undefined before the start, and once it has ended. */
export function batchLine(r: Rollout): string | undefined {
  const of = r.batches?.length ?? 0;
  if (of === 0 || r.ended_at) return undefined;
  return `Batch ${batchNow(r).toLocaleString()} of ${of.toLocaleString()}`;
}

/** rateText is a rate as a person reads it: whole hosts, in the unit that has some. */
export function rateText(perMinute: number | undefined): string | undefined {
  if (!perMinute || perMinute <= 0) return undefined;
  if (perMinute >= 10) return `${Math.round(perMinute).toLocaleString()}/min`;
  if (perMinute >= 1) return `${Number(perMinute.toFixed(1))}/min`;
  return `${Math.max(1, Math.round(perMinute * 60))}/h`;
}

const DAY_MS = 86_400_000;

/** doneText returns "done about 16:40", with the day if it is another one. */
export function doneText(pace: RolloutPace | undefined, now: number, locale?: string): string | undefined {
  const iso = pace?.done_about;
  const at = iso ? Date.parse(iso) : NaN;
  if (Number.isNaN(at)) return undefined;
  if (new Date(at).toDateString() === new Date(now).toDateString()) return `done about ${hourMinute(iso, locale)}`;
  const far = at - now > 6 * DAY_MS;
  const day = new Date(at).toLocaleDateString(locale, far ? { month: "short", day: "numeric" } : { weekday: "short" });
  return far ? `done about ${day}` : `done about ${day} ${hourMinute(iso, locale)}`;
}

/** outcomeText says what has become of the hosts: "20 of 28 hosts run 2.5.0, 3 failed". */
export function outcomeText(r: Rollout): string {
  const c = r.counts;
  const goal = r.rollback_of ? "are back at their last healthy version" : `run ${r.plan.version ?? "the new version"}`;
  const parts = [c.succeeded === c.total ? `all ${plural(c.total, "host")} ${goal}` : `${c.succeeded.toLocaleString()} of ${plural(c.total, "host")} ${goal}`];
  const others: [number, string, string][] = [
    [c.rolled_back, "was rolled back by its watcher", "were rolled back by their watchers"],
    [c.failed, "failed", "failed"],
    [refusedOf(c), "could not be given it", "could not be given it"],
    [c.skipped - refusedOf(c), "was skipped", "were skipped"],
    [c.withdrawn, "order was withdrawn", "orders were withdrawn"],
    [c.expired, "order expired", "orders expired"],
    [c.cancelled + c.pending + c.held, "keeps its version", "keep their version"],
  ];
  for (const [n, one, many] of others) if (n > 0) parts.push(`${n.toLocaleString()} ${n === 1 ? one : many}`);
  return parts.join(", ");
}

/** endText is the sentence about a rollout that has ended; undefined while it has not. */
export function endText(r: Rollout): string | undefined {
  if (!r.ended_at) return undefined;
  const took = r.started_at ? ` It took ${duration(Date.parse(r.ended_at) - Date.parse(r.started_at))}.` : "";
  return `${sentence(outcomeText(r))}${took}`;
}

/** A group of batches whose results are compared. */
export interface Share {
  label: string;
  total: number;
  ended: number;
  committed: number;
  bad: number;
  /** Failed ones of those that have ended, in percent; undefined while none has. */
  badPercent?: number;
}

/** canaryShares compares the canaries with the rest; undefined if the rollout has no canaries. */
export function canaryShares(batches: readonly Batch[]): [Share, Share] | undefined {
  const canaries = batches.filter((b) => b.kind === "canary");
  if (canaries.length === 0 || canaries.length === batches.length) return undefined;
  return [
    shareOf("Canaries", canaries),
    shareOf(
      "The rest",
      batches.filter((b) => b.kind !== "canary"),
    ),
  ];
}

function shareOf(label: string, batches: readonly Batch[]): Share {
  const sum = (of: (c: Counts) => number) => batches.reduce((n, b) => n + of(b.counts), 0);
  const committed = sum((c) => c.succeeded);
  const bad = sum(badOf);
  const ended = committed + bad;
  return { label, total: sum((c) => c.total), ended, committed, bad, badPercent: ended > 0 ? (bad * 100) / ended : undefined };
}

/** percentText has one decimal below ten percent, where it matters. */
export function percentText(n: number | undefined): string {
  if (n === undefined) return "–";
  return `${n > 0 && n < 10 ? Number(n.toFixed(1)) : Math.round(n)} %`;
}

/** batchNameOf returns the name of a batch in words. */
export function batchNameOf(b: Pick<Batch, "index" | "kind">): string {
  if (b.kind === "canary") return b.index === 0 ? "Canaries" : `Canaries ${b.index + 1}`;
  return `Batch ${(b.index + 1).toLocaleString()}`;
}

/** targetSince returns when a target reached its state. */
export const targetSince = (t: Target): string | undefined => t.ended_at ?? t.history?.findLast((h) => h.state === t.state)?.at ?? t.reached_at ?? t.offered_at;

/** Reasons that the state of a target contains, or its error explains. */
const STATED: readonly string[] = ["next", "healthy", "rolled_back"];

/** ownReason returns why a target is in its state, unless the state says it all. */
export function ownReason(t: Target, r: Rollout): string {
  const code = whyCode(t, r);
  return code === undefined || STATED.includes(code) ? "" : codeText(code);
}

/** committedPercent is rounded down, so that 100 means that all hosts run the version for good. */
export const committedPercent = (c: Counts): number => (c.total === 0 ? 0 : Math.floor((c.succeeded * 100) / c.total));

export const committedText = (c: Counts): string => `${c.succeeded.toLocaleString()} of ${plural(c.total, "host")} committed`;

/** restText counts the hosts that are not committed: "3 failed, 2 under way, 10 to go". */
export function restText(c: Counts): string {
  const parts: [number, string][] = [
    [c.failed, "failed"],
    [c.rolled_back, "rolled back"],
    [refusedOf(c), "refused"],
    [inFlightOf(c), "under way"],
    [c.pending + c.held, "to go"],
    [c.withdrawn + c.skipped - refusedOf(c) + c.expired + c.cancelled, "left out"],
  ];
  return parts
    .filter(([n]) => n > 0)
    .map(([n, word]) => `${n.toLocaleString()} ${word}`)
    .join(", ");
}
