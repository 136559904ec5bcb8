/** The searches of the rollout pages, as in their addresses. */
import type { Rollout, RolloutState, TargetState } from "~/api/types";
import { isTargetState } from "./rolloutCounts";
import { stateLabel } from "./rolloutText";

export const ROLLOUT_STATES = Object.keys(stateLabel) as RolloutState[];

export interface RolloutsSearch {
  state?: RolloutState[];
}

export interface BoardSearch {
  state?: TargetState;
  batch?: number;
  page?: number;
}

/** Both drop unknown values, so that old links still open. */
export function parseRolloutsSearch(raw: Record<string, unknown>): RolloutsSearch {
  const state = (Array.isArray(raw.state) ? raw.state : []).filter((s): s is RolloutState => ROLLOUT_STATES.includes(s as RolloutState));
  return state.length > 0 ? { state } : {};
}

export function parseBoardSearch(raw: Record<string, unknown>): BoardSearch {
  const whole = (v: unknown, least: number) => (typeof v === "number" && Number.isInteger(v) && v >= least ? v : undefined);
  const search: BoardSearch = {};
  if (isTargetState(raw.state)) search.state = raw.state;
  const batch = whole(raw.batch, 0);
  if (batch !== undefined) search.batch = batch;
  const page = whole(raw.page, 2);
  if (page !== undefined) search.page = page;
  return search;
}

/** countStates returns how many rollouts are in each state. */
export function countStates(list: readonly Rollout[]): Map<RolloutState, number> {
  const counts = new Map<RolloutState, number>();
  for (const r of list) counts.set(r.state, (counts.get(r.state) ?? 0) + 1);
  return counts;
}
