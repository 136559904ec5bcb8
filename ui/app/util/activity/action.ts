/** Actions in words: what was ordered, how far it is, and how it stands. An acknowledgement alone is never a success. */
import type { ActionHostState, ActionStatus } from "~/api/types";
import { quoted } from "~/util/kql";
import { PROGRESS_ORDER, progressTone, progressWord, type Tone } from "~/util/state";
import { ACTION_TYPES, type ActionType } from "./activitySearch";

export const typeWord: Record<ActionType, string> = {
  UPGRADE: "Upgrade",
  ROLLBACK: "Rollback",
  STAGE: "Staging",
  REQUEST_DIAGNOSTICS: "Diagnostics",
  POLICY_REASSIGN: "Policy reassigned",
  POLICY_CHANGE: "Policy changed",
  UNENROLL: "Unenrolment",
  FORCE_UNENROLL: "Unenrolment at once",
  UPDATE_TAGS: "Tags changed",
  MIGRATE: "Migration",
  PRIVILEGE_LEVEL_CHANGE: "Rights changed",
};

const known = (type: string): type is ActionType => (ACTION_TYPES as readonly string[]).includes(type);

/** actionTitle is what was ordered, such as "Upgrade of web to 2.4.1". */
export function actionTitle(
  a: Pick<ActionStatus, "type" | "rollback" | "component" | "version" | "policyId" | "newPolicyId" | "revision">,
  policyName: (id: string) => string = (id) => id,
): string {
  if (a.policyId) return `Policy ${policyName(a.policyId)} changed to revision ${a.revision}`;
  if (a.newPolicyId) return `Reassigned to the policy ${policyName(a.newPolicyId)}`;
  const type = a.rollback ? "ROLLBACK" : a.type;
  const word = known(type) ? typeWord[type] : type;
  const of = a.component ? ` of ${a.component}` : "";
  if (type === "STAGE") return `Staging of ${a.component ? `${a.component} ` : ""}${a.version ?? "a version"}`;
  return `${word}${of}${a.version ? ` to ${a.version}` : ""}`;
}

export interface Part {
  state: ActionHostState;
  word: string;
  tone: Tone;
  count: number;
}

/**
 * partsOf returns how many hosts are how far, in the order of an upgrade. The parts add up to the
 * hosts of the action. Actions without phases have three parts.
 */
export function partsOf(a: ActionStatus): Part[] {
  const total = hostsOf(a);
  const progress = a.progress && Object.keys(a.progress).length > 0 ? a.progress : undefined;
  if (!progress) return plainParts(a, total);
  const parts: Part[] = PROGRESS_ORDER.filter((s) => progress[s]).map((s) => ({
    state: s,
    ...hostLook(s),
    count: progress[s]!,
  }));
  const left = total - parts.reduce((n, p) => n + p.count, 0);
  if (left > 0) parts.push({ state: "stopped", ...hostLook("stopped"), count: left });
  return parts;
}

function plainParts(a: ActionStatus, total: number): Part[] {
  const done = Math.min(total, a.nbAgentsDone);
  const failed = Math.min(total - done, a.nbAgentsFailed);
  const waiting = total - done - failed;
  const stopped = a.outcome === "CANCELLED" || a.outcome === "EXPIRED";
  const parts: Part[] = [
    { state: "done", ...hostLook("done"), count: done },
    { state: "failed", ...hostLook("failed"), count: failed },
    { state: stopped ? "stopped" : "sent", ...hostLook("stopped"), word: stopped ? "Without an answer" : "Waiting", count: waiting },
  ];
  return parts.filter((p) => p.count > 0);
}

export const hostsOf = (a: Pick<ActionStatus, "nbAgentsActioned" | "nbAgentsActionCreated">): number => Math.max(a.nbAgentsActioned, a.nbAgentsActionCreated);

/** hostLook is the word and the tone of how an action stands on a host. */
export function hostLook(s: ActionHostState): { word: string; tone: Tone } {
  if (s === "done") return { word: "Done", tone: "ok" };
  if (s === "stopped") return { word: "Stopped", tone: "away" };
  return { word: progressWord[s] ?? s, tone: progressTone(s) };
}

/** latestQuery finds the hosts of an upgrade that have got no newer one; undefined for other actions. */
export function latestQuery(a: Pick<ActionStatus, "actionId" | "component" | "type">, state?: ActionHostState): string | undefined {
  if (a.type !== "UPGRADE") return undefined;
  if (a.component) return `component_actions: ${quoted(a.actionId)}`;
  return `upgrade_action_id: ${quoted(a.actionId)}${state ? ` and progress: ${state}` : ""}`;
}

/** lackQuery finds the hosts that lack a revision of a policy. */
export const lackQuery = (policyId: string, revision: number): string => `policy_id: ${quoted(policyId)} and not policy_revision_idx >= ${revision}`;

export const outcomeWord: Record<ActionStatus["outcome"], string> = {
  IN_PROGRESS: "In progress",
  COMPLETE: "Complete",
  FAILED: "Failed",
  CANCELLED: "Cancelled",
  EXPIRED: "Expired",
  ROLLOUT_PASSED: "Past its period",
};

const outcomeTones: Record<ActionStatus["outcome"], Tone> = {
  IN_PROGRESS: "move",
  COMPLETE: "ok",
  FAILED: "bad",
  CANCELLED: "away",
  EXPIRED: "away",
  ROLLOUT_PASSED: "wait",
};

/** outcomeLook: while any host is watched the action has not ended, whatever was acknowledged. */
export function outcomeLook(a: ActionStatus, now: number): { word: string; tone: Tone } {
  if (a.preparing) return { word: `Ordering, ${a.preparing.handled.toLocaleString()} of ${a.preparing.agents.toLocaleString()}`, tone: "move" };
  if (isScheduled(a, now)) return { word: "Scheduled", tone: "away" };
  if (a.outcome === "IN_PROGRESS") {
    const moving = partsOf(a).filter((p) => p.tone === "move" || p.tone === "watch");
    if (moving.length > 0 && moving.every((p) => p.state === "watching")) return { word: "Watching", tone: "watch" };
    if (a.progress && moving.length === 0 && partsOf(a).some((p) => p.state === "waiting_for_host")) return { word: "Waiting for hosts", tone: "away" };
  }
  return { word: outcomeWord[a.outcome] ?? a.outcome, tone: outcomeTones[a.outcome] ?? "away" };
}

export function isScheduled(a: Pick<ActionStatus, "outcome" | "startTime">, now: number): boolean {
  return a.outcome === "IN_PROGRESS" && !!a.startTime && Date.parse(a.startTime) > now;
}

/** orderedBy is who ordered it; what a rollout orders has the rollout beside it, so its name is not repeated. */
export const orderedBy = (a: Pick<ActionStatus, "created_by" | "rollout">): string =>
  a.rollout && a.created_by?.startsWith("rollout ") ? "" : (a.created_by ?? "");
