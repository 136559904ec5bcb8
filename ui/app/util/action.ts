/** The result of an action, in one sentence and four numbers. */
import type { ActionStatus } from "~/api/types";
import { plural } from "./words";

export interface Progress {
  total: number;
  done: number;
  failed: number;
  waiting: number;
}

/** The result of progressOf always adds up: done + failed + waiting = total. */
export function progressOf(a: ActionStatus): Progress {
  const total = Math.max(a.nbAgentsActioned, a.nbAgentsActionCreated);
  const done = Math.min(total, a.nbAgentsDone);
  const failed = Math.min(total - done, a.nbAgentsFailed);
  return { total, done, failed, waiting: total - done - failed };
}

export function isScheduled(a: ActionStatus, now: number): boolean {
  return a.outcome === "IN_PROGRESS" && !!a.startTime && Date.parse(a.startTime) > now;
}

const verbs: Record<string, { doing: string; did: string; noun: string }> = {
  UPGRADE: { doing: "Upgrading", did: "Upgraded", noun: "Upgrade" },
  UNENROLL: { doing: "Unenrolling", did: "Unenrolled", noun: "Unenrollment" },
  FORCE_UNENROLL: { doing: "Revoking", did: "Revoked", noun: "Revocation" },
  ROLLBACK: { doing: "Rolling back", did: "Rolled back", noun: "Rollback" },
  STAGE: { doing: "Staging on", did: "Staged on", noun: "Staging" },
  PROCEED: { doing: "Going on in lockstep on", did: "Went on in lockstep on", noun: "Order to go on in lockstep" },
  CANCEL: { doing: "Cancelling for", did: "Cancelled for", noun: "Cancellation" },
};

/** A POLICY_CHANGE names its policy by policyName. */
export function actionTitle(a: ActionStatus, now: number, policyName: (id: string) => string = (id) => id): string {
  const { total, done, failed, waiting } = progressOf(a);
  if (a.policyId) return `Policy ${policyName(a.policyId)} revision ${a.revision}: ${done.toLocaleString()} of ${plural(total, "agent")}`;
  const verb = verbs[a.rollback ? "ROLLBACK" : a.type] ?? { doing: `${a.type}:`, did: `${a.type}:`, noun: a.type };
  const staged = a.type === "STAGE";
  const to = !a.version ? "" : staged ? `: ${a.component ? `${a.component} ` : ""}${a.version}` : ` to ${a.version}`;
  const on = a.component && !staged ? `${a.component} on ` : "";
  const all = plural(total, "agent");
  const agents = on + all;
  const some = on + (done === total ? all : `${done.toLocaleString()} of ${all}`);
  switch (a.outcome) {
    case "IN_PROGRESS":
      return isScheduled(a, now) ? `${verb.noun} of ${agents}${to} is scheduled` : `${verb.doing} ${some}${to}`;
    case "COMPLETE":
      return failed > 0 ? `${verb.did} ${some}${to}, ${failed.toLocaleString()} failed` : `${verb.did} ${some}${to}`;
    case "FAILED":
      return done > 0 ? `${verb.did} ${some}${to}, ${failed.toLocaleString()} failed` : `${verb.noun} of ${agents}${to} failed`;
    case "CANCELLED":
      return `${verb.noun} of ${agents}${to} was cancelled${done > 0 ? `, ${done.toLocaleString()} done before` : ""}`;
    case "EXPIRED":
      return `${verb.noun} of ${agents}${to} expired${waiting > 0 ? `, ${waiting.toLocaleString()} never answered` : ""}`;
    case "ROLLOUT_PASSED":
      return `${verb.doing} ${some}${to}, past its rollout period`;
    default:
      return `${verb.noun} of ${agents}${to}: ${a.outcome}`;
  }
}

export const actionStatusLabel: Record<ActionStatus["status"], string> = {
  IN_PROGRESS: "In progress",
  COMPLETE: "Complete",
  FAILED: "Failed",
  CANCELLED: "Cancelled",
  EXPIRED: "Expired",
  ROLLOUT_PASSED: "Rollout period passed",
};

/** whyNotCancel returns why an action cannot be cancelled, or null if it can. */
export function whyNotCancel(a: ActionStatus): string | null {
  if (a.type !== "UPGRADE") return "Only upgrades can be cancelled.";
  if (a.outcome !== "IN_PROGRESS" && a.outcome !== "ROLLOUT_PASSED") return "This upgrade has ended.";
  if (a.nbAgentsAck + a.nbAgentsFailed >= progressOf(a).total) return "Every agent has answered already.";
  return null;
}
