/** Rollouts in words. */
import type { Plan, Rollout, RolloutState, StopKind, Target, TargetState, Wait } from "~/api/types";
import { relative } from "~/util/time";
import { plural } from "~/util/words";

export const stateLabel: Record<RolloutState, string> = {
  draft: "Draft",
  running: "Running",
  paused: "Paused",
  cancelling: "Cancelling",
  completed: "Completed",
  failed: "Failed",
  cancelled: "Cancelled",
  rolled_back: "Rolled back",
};

export const targetLabel: Record<TargetState, string> = {
  pending: "Scheduled",
  held: "Waiting for the host",
  offered: "Sent",
  upgrading: "Upgrading",
  verifying: "Watching",
  succeeded: "Committed",
  failed: "Failed",
  rolled_back: "Rolled back",
  withdrawn: "Withdrawn",
  skipped: "Skipped",
  expired: "Expired",
  cancelled: "Cancelled",
};

export const stopTitle: Record<StopKind, string> = {
  operator: "Paused",
  success: "Paused after a successful batch, as planned",
  threshold: "Paused: too many failures",
  canary: "Paused: a canary failed",
  exposure: "Paused: the fleet-wide exposure limit is reached",
  deadline: "Paused: a deadline has passed",
  rollback: "Paused: it is being rolled back",
  verify: "Paused: not all targets are ready",
};

/** stopReason is the title for where a badge already says that the rollout is paused. */
export const stopReason = (kind: StopKind): string => stopTitle[kind].replace(/^Paused: (.)/, (_, first: string) => first.toUpperCase());

/** Reason codes as short headings; the server's sentence is shown beside them. */
const codes: Record<string, string> = {
  draft: "Not started",
  later_batch: "A later batch",
  max_parallel: "Limit of parallel upgrades",
  label_limit: "Limit of this label",
  soak: "Soaking",
  observation: "Canaries are being watched",
  approval: "Needs approval",
  window: "Outside the maintenance windows",
  freeze: "Freeze",
  paused: "Paused",
  threshold: "Too many failures",
  canary_failed: "A canary failed",
  exposure: "Exposure limit",
  deadline: "Deadline passed",
  away: "Host is offline",
  busy: "Host is busy",
  over: "Rollout has ended",
  rolling_back: "Being rolled back",
  next: "Next",
  watched: "Hosts watch the new version",
  going_back: "A watcher is rolling back",
  unconfirmed: "Host has not confirmed the cancel",
  newer_server: "Needs a newer server",
  staging: "Version is being staged",
  verify: "Targets are verified",
  lockstep: "All targets together",
  not_staged: "Has not staged the version",
  no_lockstep: "Cannot upgrade in lockstep",
  left_out_away: "Was offline at the start",
  undone: "Everything was undone",
  in_force: "Another version is in force",
  never_checked_in: "Has never checked in",
  behind: "Did not go along in time",
  runs_version: "Runs the version already",
  refused: "Cannot be upgraded",
  other_source: "Runs another version than source_version",
  other_ring: "In another ring",
  locked: "In another rollout",
  no_way_back: "No version to go back to",
  reported_failure: "The host reported a failure",
  rolled_back: "Rolled back by its host",
  rollback_failed: "The rollback failed",
  stale: "No sign of the host",
  no_progress: "Online, without progress",
  stalled: "Running, but not healthy in time",
  silent: "Silent after the upgrade",
  crash_loop: "Crash loop",
  no_space: "Too little free space",
  untrusted: "Package not trusted",
  unhealthy: "Unhealthy",
  gone: "Unenrolled",
  overtaken: "Moved to another version meanwhile",
  operator: "By an operator",
  failed_before: "Failed on this host before",
  expired: "Offer expired",
  healthy: "Healthy",
  unchecked: "Not checked, as planned",
  no_component: "Does not run the component",
  config: "Its configuration cannot be rendered",
  config_changed: "Its configuration has changed since the preview",
};

/** codeText names a reason; unknown codes of a newer server are shown as they are. */
export function codeText(code: string | undefined): string {
  return code ? (codes[code] ?? code.replaceAll("_", " ")) : "";
}

/**
 * whyCode returns why a target is in its state. The server does not update a target for what
 * delays the whole rollout: a target that is next waits for what the rollout waits for.
 */
export function whyCode(t: Target, r: Rollout): string | undefined {
  if (t.state !== "pending" || t.code !== "next") return t.code;
  return r.waiting?.find((w) => w.code !== "later_batch")?.code ?? t.code;
}

/** waitTitle names what a rollout waits for. The same code on a target means that it waits for the others. */
export function waitTitle(code: string): string {
  return code === "later_batch" ? "The current batch" : codeText(code);
}

/** The waits of a paused rollout, without the pause itself, which is shown with the stop. */
const OF_STOP = ["paused", "threshold", "canary_failed", "exposure", "deadline", "rolling_back", "verify"];

export function waitsOf(r: Rollout): Wait[] {
  return (r.waiting ?? []).filter((w) => !(r.state === "paused" && OF_STOP.includes(w.code)));
}

/** countdown formats the time until a moment, within an hour as a clock. */
export function countdown(until: string, now: number): string {
  const left = Math.max(0, Math.ceil((Date.parse(until) - now) / 1000));
  if (left >= 3600) return relative(until, now);
  return `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")} min`;
}

/** countdownText says when a wait ends. */
export function countdownText(until: string, now: number): string {
  return Date.parse(until) - now < 3_600_000 ? `${countdown(until, now)} left` : `ends ${relative(until, now)}`;
}

/** strategyText describes a strategy in one line. */
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
      return `All at once${s.force_continue ? ", ignoring failures" : ""}`;
    case "lockstep":
      return `In lockstep${s.away === "exclude" ? ", without offline hosts" : ""}`;
    default:
      return String(s.kind);
  }
}

/** How many hosts a sentence names. */
const NAMED = 3;

function named(hosts: readonly string[]): string {
  return hosts.length > NAMED ? `${hosts.slice(0, NAMED).join(", ")} and ${(hosts.length - NAMED).toLocaleString()} more` : hosts.join(", ");
}

/** lockstepText says in which phase a rollout in lockstep is, and what that means. */
export function lockstepText(r: Rollout): string {
  const l = r.lockstep;
  if (!l) return "";
  const parts = [`Phase ${l.phase.replaceAll("_", " ")}`];
  if (l.undo) parts.push(`everything is undone: ${l.undo.why}`);
  else if (l.committed_at) parts.push("it goes through to its end");
  if (l.missing?.length) parts.push(`left out because offline: ${named(l.missing)}`);
  // A paused one names them in its reason.
  if (l.failed?.length) parts.push(r.state === "paused" ? "a person mends what is not ready, then resumes or cancels it" : `look at ${named(l.failed)}`);
  return parts.join("; ");
}

function canaryText(c: Plan["strategy"]["canary"]): string {
  const size = c?.percent ? `${c.percent} %` : c?.size ? plural(c.size, "host") : c?.pick === "stratified" ? "fewest that cover" : "10 hosts";
  return `${size}${c?.pick === "stratified" ? ", stratified" : ""}`;
}

/** goalOf returns the version of a rollout, and its component. A rollback has a version for each target. */
export function goalOf(r: Rollout): string {
  const component = r.plan.component ? `component ${r.plan.component}` : "";
  if (r.rollback_of) return `Back to the last healthy versions${component ? ` of ${component}` : ""}`;
  // Many rollouts are named after their version.
  if (r.plan.version && r.plan.name.includes(r.plan.version)) return component;
  if (r.plan.version && component) return `${component} to ${r.plan.version}`;
  return r.plan.version ? `to ${r.plan.version}` : r.plan.upgrade_id ? `manifest ${r.plan.profile}/${r.plan.upgrade_id}` : "";
}

/** durationText formats Go's "1h30m0s". */
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

/** showsRecovery: state may be unreadable, or a plan was written and something has gone wrong. */
export function showsRecovery(r: Rollout): boolean {
  const m = r.plan.migration;
  return m?.type === "breaking" || (!!m?.recovery_plan && r.counts.failed > 0);
}
