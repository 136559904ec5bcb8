/** The groups and words of a rollout's targets, as its grid and their legend show them. */
import type { ProgressState, TargetState } from "~/api/types";
import { progressWord, type Tone } from "~/util/state";
import type { GridLayout } from "./gridLayout";

/** The shape besides the colour, so that groups do not differ by colour alone. */
export type GridMark = "none" | "hollow" | "cross" | "stripes" | "dot" | "bar";

/** The groups of the legend, in the order of an upgrade. All of them are always listed: the legend does not move. */
export const GRID_GROUPS = ["scheduled", "waiting", "upgrading", "watching", "committed", "rolled_back", "failed", "skipped"] as const;
export type GridGroup = (typeof GRID_GROUPS)[number];

export interface GroupLook {
  label: string;
  tone: Tone;
  mark: GridMark;
  /** The states of the targets in it, for the filter of the table of targets. */
  states: readonly TargetState[];
}

export const groupLook: Record<GridGroup, GroupLook> = {
  scheduled: { label: progressWord.scheduled, tone: "away", mark: "hollow", states: ["pending"] },
  waiting: { label: progressWord.waiting_for_host, tone: "away", mark: "dot", states: ["held"] },
  upgrading: { label: "Upgrading", tone: "move", mark: "none", states: ["offered", "upgrading"] },
  watching: { label: progressWord.watching, tone: "watch", mark: "dot", states: ["verifying"] },
  committed: { label: progressWord.committed, tone: "ok", mark: "none", states: ["succeeded"] },
  rolled_back: { label: progressWord.rolled_back, tone: "bad", mark: "stripes", states: ["rolled_back"] },
  failed: { label: progressWord.failed, tone: "bad", mark: "cross", states: ["failed"] },
  skipped: { label: "Skipped", tone: "away", mark: "bar", states: ["skipped", "withdrawn", "expired", "cancelled"] },
};

interface Phase {
  group: GridGroup;
  word: string;
  /** The progress that its word is of; absent: no agent has such a progress. */
  progress?: ProgressState;
}

const groupOfProgress: Record<ProgressState, GridGroup> = {
  scheduled: "scheduled",
  waiting_for_host: "waiting",
  sent: "upgrading",
  accepted: "upgrading",
  downloading: "upgrading",
  installing: "upgrading",
  restarting: "upgrading",
  watching: "watching",
  committed: "committed",
  rolled_back: "rolled_back",
  failed: "failed",
};

const ofProgress = (p: ProgressState): Phase => ({ group: groupOfProgress[p], word: progressWord[p], progress: p });

const ofState: Record<TargetState, Phase> = {
  pending: ofProgress("scheduled"),
  held: ofProgress("waiting_for_host"),
  offered: ofProgress("sent"),
  upgrading: ofProgress("installing"),
  verifying: ofProgress("watching"),
  succeeded: ofProgress("committed"),
  failed: ofProgress("failed"),
  rolled_back: ofProgress("rolled_back"),
  skipped: { group: "skipped", word: "Skipped" },
  withdrawn: { group: "skipped", word: "Order withdrawn" },
  expired: { group: "skipped", word: "Order expired" },
  cancelled: { group: "skipped", word: "Cancelled" },
};

/** A state of a newer server is shown as it is written, and never as a success. */
const unknown = (state: string): Phase => ({ group: "scheduled", word: state });

/** phaseOf prefers the progress, which is finer: it distinguishes a download from a restart. */
export function phaseOf(state: string, progress?: string): Phase {
  if (progress && progress in groupOfProgress) return ofProgress(progress as ProgressState);
  return ofState[state as TargetState] ?? unknown(state);
}

/** A group's position in GRID_GROUPS, which fits a byte: 100,000 targets are compared at each change. */
const codeOf = Object.fromEntries(GRID_GROUPS.map((g, i) => [g, i])) as Record<GridGroup, number>;

/** codesOf returns the group of each target as its position in GRID_GROUPS. */
export function codesOf(states: readonly string[], progress?: readonly string[]): Uint8Array {
  const codes = new Uint8Array(states.length);
  for (let i = 0; i < states.length; i++) codes[i] = codeOf[phaseOf(states[i]!, progress?.[i]).group];
  return codes;
}

/** countCodes counts targets by group. */
export function countCodes(codes: Uint8Array): Record<GridGroup, number> {
  const sums = new Array<number>(GRID_GROUPS.length).fill(0);
  for (const c of codes) sums[c]!++;
  return Object.fromEntries(GRID_GROUPS.map((g, i) => [g, sums[i]])) as Record<GridGroup, number>;
}

const FAILED = codeOf.failed;
const ROLLED_BACK = codeOf.rolled_back;

/**
 * codeOfBin returns the group of a cell of several targets: a failure shows even if it is the only
 * one, else the most frequent group, and of equal ones the earlier in an upgrade.
 */
export function codeOfBin(counts: ArrayLike<number>): number {
  if (counts[FAILED]! > 0) return FAILED;
  if (counts[ROLLED_BACK]! > 0) return ROLLED_BACK;
  let best = 0;
  for (let c = 1; c < counts.length; c++) if (counts[c]! > counts[best]!) best = c;
  return best;
}

/** countsText lists the groups that have targets: "3 failed, 1,200 committed". The worst come first. */
export function countsText(counts: Record<GridGroup, number>): string {
  const order: readonly GridGroup[] = ["failed", "rolled_back", "watching", "upgrading", "waiting", "committed", "scheduled", "skipped"];
  const parts = order.filter((g) => counts[g] > 0).map((g) => `${counts[g].toLocaleString()} ${groupLook[g].label.toLowerCase()}`);
  return parts.length > 0 ? parts.join(", ") : "no hosts";
}

/** cellCodes returns the group of each cell, given that of each target. */
export function cellCodes(layout: GridLayout, codes: Uint8Array): Uint8Array {
  const cells = new Uint8Array(layout.cells);
  if (layout.per === 1) {
    for (let i = 0; i < cells.length; i++) cells[i] = codes[layout.order[i]!]!;
    return cells;
  }
  const counts = new Uint32Array(GRID_GROUPS.length);
  for (const column of layout.columns) {
    for (let c = 0; c < column.cells; c++) {
      counts.fill(0);
      const end = Math.min(column.count, (c + 1) * layout.per);
      for (let i = c * layout.per; i < end; i++) counts[codes[layout.order[column.start + i]!]!]!++;
      cells[column.firstCell + c] = codeOfBin(counts);
    }
  }
  return cells;
}
