/** The words, tones and meanings of health and progress; the same words as in the API and the command line. */
import type { Health, Progress, ProgressState, RolloutState } from "~/api/types";

/** What a colour means. */
export type Tone = "ok" | "move" | "watch" | "wait" | "bad" | "away";

export const healthWord: Record<Health, string> = {
  healthy: "Healthy",
  degraded: "Degraded",
  failed: "Failed",
  offline: "Offline",
  enrolling: "Enrolling",
  inactive: "Inactive",
  uninstalled: "Uninstalled",
  unenrolled: "Unenrolled",
};

const healthTones: Record<Health, Tone> = {
  healthy: "ok",
  degraded: "wait",
  failed: "bad",
  offline: "away",
  enrolling: "move",
  inactive: "away",
  uninstalled: "away",
  unenrolled: "away",
};

/** A newer server may have values that this page does not know; they are shown as they are. */
export const healthTone = (h: Health): Tone => healthTones[h] ?? "away";

export const progressWord: Record<ProgressState, string> = {
  scheduled: "Scheduled",
  sent: "Sent",
  accepted: "Accepted",
  downloading: "Downloading",
  installing: "Installing",
  restarting: "Restarting",
  watching: "Watching",
  committed: "Committed",
  rolled_back: "Rolled back",
  failed: "Failed",
  waiting_for_host: "Waiting for the host",
};

const progressTones: Record<ProgressState, Tone> = {
  scheduled: "away",
  sent: "move",
  accepted: "move",
  downloading: "move",
  installing: "move",
  restarting: "move",
  watching: "watch",
  committed: "ok",
  rolled_back: "bad",
  failed: "bad",
  waiting_for_host: "away",
};

export const progressTone = (s: ProgressState): Tone => progressTones[s] ?? "away";

/** The states in the order in which an upgrade passes them; the ends come last. */
export const PROGRESS_ORDER: readonly ProgressState[] = [
  "scheduled",
  "waiting_for_host",
  "sent",
  "accepted",
  "downloading",
  "installing",
  "restarting",
  "watching",
  "committed",
  "rolled_back",
  "failed",
];

/** progressText is the word, with the share of a download. */
export function progressText(p: Progress): string {
  const word = progressWord[p.state] ?? p.state;
  return p.state === "downloading" && p.percent !== undefined ? `${word} ${Math.floor(p.percent)} %` : word;
}

/** Whether the upgrade has ended. */
export const isOver = (s: ProgressState): boolean => s === "committed" || s === "rolled_back" || s === "failed";

/** Whether something on the host changes now. An upgrade that waits for its host does not move. */
export const isMoving = (s: ProgressState): boolean => progressTone(s) === "move" || s === "watching";

export const rolloutWord: Record<RolloutState, string> = {
  draft: "Draft",
  running: "Running",
  paused: "Paused",
  cancelling: "Cancelling",
  completed: "Completed",
  failed: "Failed",
  cancelled: "Cancelled",
  rolled_back: "Rolled back",
};

const rolloutTones: Record<RolloutState, Tone> = {
  draft: "away",
  running: "move",
  paused: "wait",
  cancelling: "wait",
  completed: "ok",
  failed: "bad",
  cancelled: "away",
  rolled_back: "bad",
};

/** A running rollout that waits for an approval is shown as waiting for a person. */
export function rolloutLook(r: { state: RolloutState; waiting?: readonly { code: string }[] }): { word: string; tone: Tone } {
  if (r.state === "running" && r.waiting?.some((w) => w.code === "approval")) return { word: "Waiting", tone: "wait" };
  return { word: rolloutWord[r.state] ?? r.state, tone: rolloutTones[r.state] ?? "away" };
}
