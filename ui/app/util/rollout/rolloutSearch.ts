/** The searches of the rollout pages, as in their addresses. Both drop unknown values, so that old links still open. */
import type { RolloutState, StrategyKind } from "~/api/types";
import type { GridGroup } from "~/util/grid/gridClass";
import { groupsFrom } from "~/util/grid/gridText";
import { rolloutWord } from "~/util/state";
import { strategies } from "./strategies";

export const ROLLOUT_STATES = Object.keys(rolloutWord) as RolloutState[];

export interface RolloutsSearch {
  state?: RolloutState[];
  kind?: StrategyKind[];
  page?: number;
}

export interface BoardSearch {
  /** The groups of the grid that are shown. */
  state?: GridGroup[];
  batch?: number;
  /** The reason of a failure. */
  code?: string;
  /** The id of the one agent that is shown. */
  host?: string;
  page?: number;
}

export function parseRolloutsSearch(raw: Record<string, unknown>): RolloutsSearch {
  const state = list(raw.state).filter((s): s is RolloutState => ROLLOUT_STATES.includes(s as RolloutState));
  const kind = list(raw.kind).filter((k): k is StrategyKind => typeof k === "string" && k in strategies);
  return compact({ state: state.length > 0 ? state : undefined, kind: kind.length > 0 ? kind : undefined, page: whole(raw.page, 2) });
}

export function parseBoardSearch(raw: Record<string, unknown>): BoardSearch {
  const state = groupsFrom(raw.state);
  return compact({
    state: state.length > 0 ? state : undefined,
    batch: whole(raw.batch, 0),
    code: text(raw.code),
    host: text(raw.host),
    page: whole(raw.page, 2),
  });
}

/** A tab of the list: states that an operator looks for together. */
export interface StateTab {
  label: string;
  state?: RolloutState[];
}

export const STATE_TABS: readonly StateTab[] = [
  { label: "All" },
  { label: "Under way", state: ["running", "paused", "cancelling"] },
  { label: "Drafts", state: ["draft"] },
  { label: "Completed", state: ["completed"] },
  { label: "Failed or rolled back", state: ["failed", "rolled_back"] },
  { label: "Cancelled", state: ["cancelled"] },
];

/** isTab reports whether a search shows the states of a tab. */
export const isTab = (tab: StateTab, state: readonly RolloutState[] | undefined): boolean =>
  (tab.state ?? []).length === (state ?? []).length && (tab.state ?? []).every((s) => state!.includes(s));

/** tabOf returns the tab of a search; undefined if no tab has just its states. */
export const tabOf = (state: readonly RolloutState[] | undefined): StateTab | undefined => STATE_TABS.find((t) => isTab(t, state));

const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : typeof value === "string" && value !== "" ? value.split(",") : []);

const text = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined);

const whole = (value: unknown, least: number): number | undefined =>
  typeof value === "number" && Number.isInteger(value) && value >= least ? value : undefined;

function compact<T extends object>(object: T): T {
  return Object.fromEntries(Object.entries(object).filter(([, v]) => v !== undefined)) as T;
}
