/** The search of the activity page, as in its address. */
import type { ActionHostState, ActionStatus } from "~/api/types";
import { compact, pageOf, someOf, textOf } from "~/util/searchParts";
import { PROGRESS_ORDER } from "~/util/state";

export const ACTION_TYPES = [
  "UPGRADE",
  "ROLLBACK",
  "STAGE",
  "REQUEST_DIAGNOSTICS",
  "POLICY_REASSIGN",
  "POLICY_CHANGE",
  "UNENROLL",
  "FORCE_UNENROLL",
  "UPDATE_TAGS",
  "MIGRATE",
  "PRIVILEGE_LEVEL_CHANGE",
] as const;
export type ActionType = (typeof ACTION_TYPES)[number];

export const OUTCOMES: readonly ActionStatus["outcome"][] = ["IN_PROGRESS", "COMPLETE", "FAILED", "CANCELLED", "EXPIRED", "ROLLOUT_PASSED"];

export interface ActivitySearch {
  type?: ActionType[];
  /** The name of an admin key. */
  by?: string;
  outcome?: ActionStatus["outcome"][];
  page?: number;
  /** The action whose details are open. */
  open?: string;
  /** Of its hosts only those in this state, and the page of them. */
  state?: ActionHostState;
  hosts?: number;
}

/** The states of the hosts of an action, in the order of an upgrade. */
export const HOST_STATES: readonly ActionHostState[] = [...PROGRESS_ORDER, "done", "stopped"];

/** parseActivitySearch drops unknown values, so that old links still open. */
export const parseActivitySearch = (raw: Record<string, unknown>): ActivitySearch =>
  compact({
    type: someOf(raw.type, ACTION_TYPES),
    by: textOf(raw.by),
    outcome: someOf(raw.outcome, OUTCOMES),
    page: pageOf(raw.page),
    open: textOf(raw.open),
    state: someOf(raw.state, HOST_STATES)?.[0],
    hosts: pageOf(raw.hosts),
  });
