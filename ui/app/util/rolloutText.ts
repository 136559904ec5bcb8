/** Rollouts in words. */
import type { Plan, Rollout, RolloutState, StopKind, Target, TargetState, Wait } from "~/api/types";
import { exact, relative } from "./time";
import { plural } from "./words";

export const stateLabel: Record<RolloutState, string> = {
  draft: "Draft", running: "Running", paused: "Paused", cancelling: "Cancelling", completed: "Completed", failed: "Failed", cancelled: "Cancelled", rolled_back: "Rolled back",
};

export const targetLabel: Record<TargetState, string> = {
  pending: "Waiting", held: "Away", offered: "Offered", upgrading: "Upgrading", verifying: "Being watched", succeeded: "Upgraded", failed: "Failed",
  rolled_back: "Rolled back", withdrawn: "Withdrawn", skipped: "Left out", expired: "Expired", cancelled: "Cancelled",
};

export const stopTitle: Record<StopKind, string> = {
  operator: "Paused",
  success: "Paused after a good batch, as its plan says",
  threshold: "Stopped: too many failed",
  canary: "Stopped: a canary failed",
  exposure: "Stopped: the fleet-wide exposure limit is reached",
  deadline: "Stopped: a deadline has passed",
  rollback: "Paused: it is being rolled back",
};

/** Reason codes as short headings; what the server says beside them is the sentence. */
const codes: Record<string, string> = {
  draft: "Not started", later_batch: "A later batch", max_parallel: "Enough at one time", label_limit: "Enough with this label", soak: "Soaking",
  observation: "Canaries are watched", approval: "Needs approval", window: "Outside the maintenance windows", freeze: "Freeze", paused: "Paused",
  threshold: "Too many failed", canary_failed: "A canary failed", exposure: "Exposure limit", deadline: "Deadline passed", away: "Agent is away",
  busy: "Agent is busy", over: "Rollout is over", rolling_back: "Being rolled back", next: "Comes next", going_back: "A watcher goes back", runs_version: "Runs the version already",
  refused: "Cannot be upgraded", other_source: "Runs another version than the plan asks for", other_ring: "In another ring", locked: "Another rollout has it",
  no_way_back: "No version to go back to", reported_failure: "The agent reported a failure", rolled_back: "Its watcher put the old version back",
  rollback_failed: "Stuck: it could not go back", stale: "No sign of progress", stalled: "Alive, but not healthy in time", silent: "Silent after the upgrade",
  crash_loop: "Crash loop", unhealthy: "Unhealthy", gone: "Unenrolled", overtaken: "Moved to another version meanwhile", operator: "By hand",
  expired: "Never came for its offer", healthy: "Healthy", unchecked: "Not checked, as the plan says",
};

/** codeText names a reason; what a newer server says is shown as it is. */
export function codeText(code: string | undefined): string {
  return code ? (codes[code] ?? code.replaceAll("_", " ")) : "";
}

/** codeBeside is the code itself, where its heading does not contain it anyway. */
export function codeBeside(code: string): string {
  return codeText(code).toLowerCase().includes(code.replaceAll("_", " ")) ? "" : code;
}

/**
 * whyCode is why a target stands where it stands. The server does not write a
 * target again for what holds up the whole rollout: a target whose turn it is
 * waits for what the rollout waits for.
 */
export function whyCode(t: Target, r: Rollout): string | undefined {
  if (t.state !== "pending" || t.code !== "next") return t.code;
  return r.waiting?.find((w) => w.code !== "later_batch")?.code ?? t.code;
}

/** waitTitle names what a rollout waits for; the same code on a target means that it waits for the others. */
export function waitTitle(code: string): string {
  return code === "later_batch" ? "The current batch" : codeText(code);
}

/** What a paused rollout says of its pause stands with the stop already. */
const OF_STOP = ["paused", "threshold", "canary_failed", "exposure", "deadline", "rolling_back"];

export function waitsOf(r: Rollout): Wait[] {
  return (r.waiting ?? []).filter((w) => !(r.state === "paused" && OF_STOP.includes(w.code)));
}

/** countdown says how long it is until a moment, as a clock within the hour. */
export function countdown(until: string, now: number): string {
  const left = Math.max(0, Math.ceil((Date.parse(until) - now) / 1000));
  if (left >= 3600) return relative(until, now);
  return `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")} min`;
}

/** strategyText says in a line how a plan goes about it. */
export function strategyText(p: Plan): string {
  const s = p.strategy;
  const size = s.batch_size ? `batches of ${s.batch_size.toLocaleString()}` : `batches of ${s.batch_percent || 10} %`;
  switch (s.kind) {
    case "rolling":
      return `Rolling, ${size}`;
    case "canary":
      return `Canary (${canaryText(s.canary)}), then ${size}`;
    case "rings":
      return `Rings by ${s.rings?.by || "ring"}, ${size}`;
    case "all_at_once":
      return `All at once${s.force_continue ? ", whatever fails" : ""}`;
    default:
      return String(s.kind);
  }
}

function canaryText(c: Plan["strategy"]["canary"]): string {
  const size = c?.percent ? `${c.percent} %` : c?.size ? plural(c.size, "agent") : c?.pick === "stratified" ? "fewest that cover" : "10 agents";
  return `${size}${c?.pick === "stratified" ? ", stratified" : ""}`;
}

/** goalOf is what a rollout is about. A rollback has a version for each target. */
export function goalOf(r: Rollout): string {
  if (r.rollback_of) return "Back to the last healthy versions";
  // Many are named after their version.
  if (r.plan.version && r.plan.name.includes(r.plan.version)) return "";
  return r.plan.version ? `to ${r.plan.version}` : r.plan.upgrade_id ? `manifest ${r.plan.profile}/${r.plan.upgrade_id}` : "";
}

/** durationText reads Go's "1h30m0s" as people write it. */
export function durationText(go: string): string {
  const parts = [...go.matchAll(/(\d+(?:\.\d+)?)(h|ms|m|s)/g)].map(([, n, unit]) => [Number(n), unit] as const);
  const seconds = parts.reduce((sum, [n, unit]) => sum + n * ({ h: 3600, m: 60, s: 1 }[unit as string] ?? 0.001), 0);
  if (parts.length === 0) return go;
  if (seconds < 60) return plural(Math.round(seconds), "second");
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return plural(minutes, "minute");
  const hours = Math.floor(minutes / 60);
  if (hours >= 48) return hours % 24 === 0 ? `${hours / 24} days` : `${Math.floor(hours / 24)} days ${hours % 24} h`;
  return minutes % 60 === 0 ? plural(hours, "hour") : `${hours} h ${minutes % 60} min`;
}

/** stopLine says who stopped it and when, behind the sentence of the stop. */
export function stopLine(r: Rollout): string {
  const s = r.stop;
  if (!s) return "";
  const taken = s.withdrawn > 0 ? ` ${plural(s.withdrawn, "offer")} ${s.withdrawn === 1 ? "was" : "were"} taken back in the same round.` : "";
  return `${s.by === "muster" ? "By Muster itself" : `By ${s.by}`}, ${exact(s.at)}, in batch ${s.batch + 1}.${taken}`;
}

/** showsRecovery: state may be unreadable, or a plan was written and something has gone wrong. */
export function showsRecovery(r: Rollout): boolean {
  const m = r.plan.migration;
  return m?.type === "breaking" || (!!m?.recovery_plan && r.counts.failed > 0);
}
