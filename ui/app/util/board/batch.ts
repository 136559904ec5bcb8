/** The state of a batch. */
import type { Batch, Rollout } from "~/api/types";
import { isOver } from "~/util/rollout/rollout";
import { inFlightOf } from "~/util/rollout/rolloutCounts";
import { waitTitle } from "~/util/rollout/rolloutText";

export interface BatchStep {
  word: string;
  at?: string;
}

/** Waits that delay the batch after the one that has ended. */
const BEHIND = ["soak", "observation", "approval"];

export function batchStep(b: Batch, r: Rollout): BatchStep {
  if (b.cleared_at) return { word: "Done", at: b.cleared_at };
  if (b.ended_at) {
    const wait = r.waiting?.find((w) => BEHIND.includes(w.code));
    return { word: wait ? waitTitle(wait.code) : "Ended", at: wait?.since ?? b.ended_at };
  }
  if (b.started_at) {
    if (r.state === "paused" && inFlightOf(b.counts) === 0) return { word: "Stopped", at: r.stop?.at };
    return { word: isOver(r.state) ? "Not finished" : "Under way", at: b.started_at };
  }
  return { word: isOver(r.state) ? "Not started" : "Later" };
}
