/** The states of a rollout. The server says with each rollout what can be ordered. */
import type { RolloutState, StopKind } from "~/api/types";

export const isActive = (s: RolloutState) => s === "running" || s === "paused" || s === "cancelling";
export const isOver = (s: RolloutState) => s !== "draft" && !isActive(s);

/** Pauses because of a problem, which an operator looks at before resuming. */
export const isGate = (k: StopKind) => k === "threshold" || k === "canary" || k === "exposure" || k === "deadline";
