/**
 * What an operator may do with a rollout in its state, with the reason where not.
 * Mirrors the server's own checks, so that a button never leads to a refusal; the
 * server still decides.
 */
import type { Rollout, RolloutState, StopKind, Target, TargetState } from "~/api/types";
import { badOf, isBreaking } from "./rolloutCounts";
import { plural } from "./words";

export const COMMANDS = ["start", "pause", "pause_now", "resume", "force", "approve", "cancel", "retry", "rollback_failed", "rollback_all", "delete"] as const;
export type Command = (typeof COMMANDS)[number];

export const isActive = (s: RolloutState) => s === "running" || s === "paused" || s === "cancelling";
export const isOver = (s: RolloutState) => s !== "draft" && !isActive(s);

/** Stops that say something is wrong: going on needs a reason. */
export const isGate = (k: StopKind) => k === "threshold" || k === "canary" || k === "exposure" || k === "deadline";

const standing: Record<RolloutState, string> = {
  draft: "It has not been started.",
  running: "It is running.",
  paused: "It is paused.",
  cancelling: "It is being cancelled.",
  completed: "It is completed.",
  failed: "It has ended with failures.",
  cancelled: "It was cancelled.",
  rolled_back: "It was rolled back.",
};

/** whyNot is null when the command may be given. */
export function whyNot(command: Command, r: Rollout, now: number): string | null {
  const is = standing[r.state];
  const live = r.state === "running" || r.state === "paused";
  switch (command) {
    case "start":
      return r.state === "draft" ? null : `${is} It was started before.`;
    case "delete":
      return r.state === "draft" ? null : `${is} Only drafts can be deleted.`;
    case "pause":
      if (r.state !== "running") return is;
      return r.pause_asked ? `${r.pause_asked.by} asked already: it pauses when the current batch has ended.` : null;
    case "pause_now":
      return r.state === "running" ? null : is;
    case "resume":
      if (r.state === "running" && r.pause_asked) return null;
      return r.state === "paused" ? (r.stop && isGate(r.stop.kind) ? deadline(r, now) : null) : is;
    case "force":
      if (!live) return is;
      if (r.plan.strategy.force_continue) return "Its plan goes on whatever fails.";
      if (r.state === "running" && r.forced) return `${r.forced.by} has forced it already.`;
      return deadline(r, now);
    case "approve":
      return whyNotApprove(r, live ? null : is);
    case "cancel":
      return live ? null : is;
    case "retry":
      if (!live) return is;
      return badOf(r.counts) > 0 ? null : "No target has failed. What was withdrawn or has expired is tried again one by one, in the table of targets.";
    case "rollback_failed":
    case "rollback_all":
      return whyNotPutBack(command, r);
  }
}

/** Behind the plan's own deadline nothing is offered any more. */
function deadline(r: Rollout, now: number): string | null {
  const at = r.plan.strategy.deadline;
  return at && Date.parse(at) <= now ? "Its plan's deadline has passed: cancel it, and plan another rollout for the rest." : null;
}

function whyNotApprove(r: Rollout, notLive: string | null): string | null {
  if (!needsApproval(r)) return "Its plan asks for no approval.";
  if (r.approved) return `${r.approved.by} has approved it already.`;
  if (notLive) return notLive;
  const canaries = (r.batches ?? []).filter((b) => b.kind === "canary" && !b.ended_at);
  return canaries.length > 0 ? "Its canaries are not done yet." : null;
}

function whyNotPutBack(command: "rollback_failed" | "rollback_all", r: Rollout): string | null {
  if (r.state === "draft") return standing.draft;
  if (r.rollback_of) return "It is a rollback itself; start a rollout of the version you want.";
  // The id of a rollback says what it puts back; the other one may still be asked for.
  const own = `${r.id}-rollback${command === "rollback_failed" ? "-failed" : ""}`;
  if (r.rolled_back_by === own) return "This rollback has been started already.";
  if (command === "rollback_failed") {
    if (r.counts.failed > 0) return null;
    return r.counts.rolled_back > 0 ? "What failed was put back by its watcher already." : "No target has failed.";
  }
  return putBackOf(r) > 0 ? null : "No target has been upgraded yet.";
}

/** How many targets a rollback of all puts back: those under way reach what is to be undone, those rolled back are there already. */
export function putBackOf(r: Rollout): number {
  return r.counts.failed + r.counts.succeeded + r.counts.verifying + r.counts.upgrading;
}

/** needsApproval says whether an operator must let it go on behind its canaries. */
export function needsApproval(r: Rollout): boolean {
  return r.plan.strategy.canary?.approval === true || isBreaking(r.plan);
}

/** needsWhy says whether the server refuses the command without a reason. */
export function needsWhy(command: Command, r: Rollout): boolean {
  return command === "force" || (command === "resume" && r.state === "paused" && !!r.stop && isGate(r.stop.kind));
}

/** The states a target may be put back in line from, and left out from. */
const RETRIABLE: readonly TargetState[] = ["failed", "rolled_back", "withdrawn", "expired"];
const SKIPPABLE: readonly TargetState[] = ["pending", "held", "failed", "rolled_back", "withdrawn", "expired"];

export function whyNotRetry(t: Target, r: Rollout): string | null {
  if (r.state !== "running" && r.state !== "paused") return standing[r.state];
  return RETRIABLE.includes(t.state) ? null : `It is ${targetWords[t.state]}; only what failed, was withdrawn or expired is tried again.`;
}

export function whyNotSkip(t: Target, r: Rollout): string | null {
  if (r.state !== "running" && r.state !== "paused") return standing[r.state];
  return SKIPPABLE.includes(t.state) ? null : `It is ${targetWords[t.state]}; only what has not begun, or has failed, is left out.`;
}

const targetWords: Record<TargetState, string> = {
  pending: "waiting", held: "away", offered: "offered the version", upgrading: "being upgraded", verifying: "being watched", succeeded: "upgraded",
  failed: "failed", rolled_back: "rolled back", withdrawn: "withdrawn", skipped: "left out", expired: "expired", cancelled: "cancelled",
};

/** What pausing at once, or cancelling, does to what is in flight. */
export function inFlightWords(r: Rollout): string {
  const { offered, upgrading, verifying } = r.counts;
  const back = offered === 0 ? "No offer is open that could be taken back" : `${plural(offered, "offer")} that ${offered === 1 ? "has" : "have"} not begun ${offered === 1 ? "is" : "are"} taken back`;
  const on = upgrading + verifying;
  return `${back}; ${on === 0 ? "no host has begun." : `${plural(on, "host")} that ${on === 1 ? "has" : "have"} begun ${on === 1 ? "ends" : "end"} by ${on === 1 ? "itself" : "themselves"}.`}`;
}
