/**
 * The commands that the state of a rollout allows, and the reasons why not. Mirrors the server's
 * checks, so that an enabled button is not refused; the server still decides.
 */
import type { Rollout, RolloutState, StopKind, Target, TargetState } from "~/api/types";
import { badOf, isBreaking } from "./rolloutCounts";
import { plural } from "./words";

export const COMMANDS = ["start", "pause", "pause_now", "resume", "force", "approve", "cancel", "retry", "rollback_failed", "rollback_all", "delete"] as const;
export type Command = (typeof COMMANDS)[number];

export const isActive = (s: RolloutState) => s === "running" || s === "paused" || s === "cancelling";
export const isOver = (s: RolloutState) => s !== "draft" && !isActive(s);

/** Pauses because of a problem: resuming needs a reason. */
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

/** whyNot returns null if the command is allowed. */
export function whyNot(command: Command, r: Rollout, now: number): string | null {
  const is = standing[r.state];
  const live = r.state === "running" || r.state === "paused";
  switch (command) {
    case "start":
      return r.state === "draft" ? null : is;
    case "delete":
      return r.state === "draft" ? null : `${is} Only drafts can be deleted.`;
    case "pause":
      if (r.state !== "running") return is;
      if (inLockstep(r)) return togetherText;
      return r.pause_asked ? `${r.pause_asked.by} has paused it already: it pauses when the current batch has ended.` : null;
    case "pause_now":
      return r.state !== "running" ? is : inLockstep(r) ? togetherText : null;
    case "resume":
      if (r.state === "running" && r.pause_asked) return null;
      return r.state === "paused" ? (r.stop && isGate(r.stop.kind) ? deadline(r, now) : null) : is;
    case "force":
      if (!live) return is;
      if (r.plan.strategy.kind === "lockstep") return "In lockstep nothing can be forced: all targets are ready, or none begins.";
      if (r.plan.strategy.force_continue) return "Its plan ignores failures.";
      if (r.state === "running" && r.forced) return `${r.forced.by} has forced it already.`;
      return deadline(r, now);
    case "approve":
      return whyNotApprove(r, live ? null : is);
    case "cancel":
      if (live && r.lockstep?.committed_at) return "It goes through to its end: its targets would run different versions.";
      return live ? null : is;
    case "retry":
      if (!live) return is;
      if (r.plan.strategy.kind === "lockstep") return "In lockstep no target can try again by itself.";
      return badOf(r.counts) > 0 ? null : "No target has failed. Retry withdrawn and expired targets in the table of targets.";
    case "rollback_failed":
    case "rollback_all":
      return whyNotPutBack(command, r);
  }
}

/** inLockstep reports whether targets of a rollout in lockstep are under way. */
const inLockstep = (r: Rollout) => !!r.lockstep && r.lockstep.phase !== "verify";

const togetherText = "Its targets wait for each other. Cancel it to undo everything.";

/** After the deadline of the plan nothing is offered. */
function deadline(r: Rollout, now: number): string | null {
  const at = r.plan.strategy.deadline;
  return at && Date.parse(at) <= now ? "The deadline of its plan has passed: cancel it, and create another rollout for the rest." : null;
}

function whyNotApprove(r: Rollout, notLive: string | null): string | null {
  if (!needsApproval(r)) return "Its plan needs no approval.";
  if (r.approved) return `${r.approved.by} has approved it already.`;
  if (notLive) return notLive;
  const canaries = (r.batches ?? []).filter((b) => b.kind === "canary" && !b.ended_at);
  return canaries.length > 0 ? "Its canaries are not done yet." : null;
}

function whyNotPutBack(command: "rollback_failed" | "rollback_all", r: Rollout): string | null {
  if (r.state === "draft") return standing.draft;
  if (r.rollback_of) return "It is a rollback itself; start a rollout of the version you want.";
  if (r.plan.strategy.kind === "lockstep") return "A rollback would run mixed versions; start a rollout in lockstep to the earlier version.";
  // A rollout has one rollback of each scope; the id of a rollback tells which one exists.
  const own = `${r.id}-rollback${command === "rollback_failed" ? "-failed" : ""}`;
  if (r.rolled_back_by === own) return "This rollback has been started already.";
  if (command === "rollback_failed") {
    if (r.counts.failed > 0) return null;
    return r.counts.rolled_back > 0 ? "Watchers have rolled back all failed targets already." : "No target has failed.";
  }
  return putBackOf(r) > 0 ? null : "No target has been upgraded yet.";
}

/** How many targets a rollback of all rolls back: targets under way are included, those rolled back already are not. */
export function putBackOf(r: Rollout): number {
  return r.counts.failed + r.counts.succeeded + r.counts.verifying + r.counts.upgrading;
}

/** needsApproval reports whether an operator must approve the batches after the canaries. */
export function needsApproval(r: Rollout): boolean {
  return r.plan.strategy.canary?.approval === true || (isBreaking(r.plan) && r.plan.strategy.kind !== "lockstep");
}

/** needsWhy reports whether the server refuses the command without a reason. */
export function needsWhy(command: Command, r: Rollout): boolean {
  return command === "force" || (command === "resume" && r.state === "paused" && !!r.stop && isGate(r.stop.kind));
}

/** The states in which a target can be retried or skipped. */
const RETRIABLE: readonly TargetState[] = ["failed", "rolled_back", "withdrawn", "expired"];
const SKIPPABLE: readonly TargetState[] = ["pending", "held", "failed", "rolled_back", "withdrawn", "expired"];

export function whyNotRetry(t: Target, r: Rollout): string | null {
  if (r.state !== "running" && r.state !== "paused") return standing[r.state];
  if (r.plan.strategy.kind === "lockstep") return "In lockstep no target can try again by itself.";
  return RETRIABLE.includes(t.state) ? null : `It is ${targetWords[t.state]}; only failed, withdrawn and expired targets can be retried.`;
}

export function whyNotSkip(t: Target, r: Rollout): string | null {
  if (r.state !== "running" && r.state !== "paused") return standing[r.state];
  if (inLockstep(r)) return togetherText;
  return SKIPPABLE.includes(t.state) ? null : `It is ${targetWords[t.state]}; only targets that have not started or have failed can be skipped.`;
}

const targetWords: Record<TargetState, string> = {
  pending: "waiting", held: "offline", offered: "offered the version", upgrading: "being upgraded", verifying: "being watched", succeeded: "upgraded",
  failed: "failed", rolled_back: "rolled back", withdrawn: "withdrawn", skipped: "skipped", expired: "expired", cancelled: "cancelled",
};

/** What pausing at once, or cancelling, does to targets in flight. */
export function inFlightWords(r: Rollout): string {
  const { offered, upgrading, verifying } = r.counts;
  const back = offered === 0 ? "No offer is open" : `${plural(offered, "offer")} that ${offered === 1 ? "has" : "have"} not started ${offered === 1 ? "is" : "are"} withdrawn`;
  const on = upgrading + verifying;
  return `${back}; ${on === 0 ? "no upgrade is under way." : `${plural(on, "upgrade")} under way still ${on === 1 ? "ends" : "end"}.`}`;
}
