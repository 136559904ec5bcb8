/** The states of a rollout. The server says with each rollout what can be ordered. */
import type { Rollout, RolloutState, StopKind } from "~/api/types";
import { badOf, refusedOf } from "./rolloutCounts";

export const isActive = (s: RolloutState) => s === "running" || s === "paused" || s === "cancelling";
export const isOver = (s: RolloutState) => s !== "draft" && !isActive(s);

/** Pauses because of a problem, which an operator looks at before resuming. */
export const isGate = (k: StopKind) => k === "threshold" || k === "canary" || k === "exposure" || k === "deadline";

/** againOf returns how many hosts of a rollout another one can try again. In a rollback each host has its own version. */
export const againOf = (r: Pick<Rollout, "state" | "rollback_of" | "counts">): number =>
  isOver(r.state) && !r.rollback_of ? badOf(r.counts) + refusedOf(r.counts) : 0;
