/** What the rollout's grid says of a cell and of a batch. */

import { plural } from "~/util/words";
import { codesOf, countCodes, countsText, GRID_GROUPS, type GridGroup, groupLook, phaseOf } from "./gridClass";
import { columnOf, type GridColumn, type GridLayout, membersOf } from "./gridLayout";

/** The lists of RolloutGrid that the texts need. */
export interface GridTargets {
  states: readonly string[];
  progress?: readonly string[];
  hostnames: readonly string[];
}

/** Names of batches by index, such as "Canary"; others are numbered. */
export type BatchNames = Readonly<Record<number, string>>;

export const batchName = (batch: number, names?: BatchNames) => names?.[batch] ?? `Batch ${(batch + 1).toLocaleString()}`;

export interface CellText {
  /** A hostname, or the first and the last of a bin. */
  title: string;
  /** The state as a word, or the counts of a bin. */
  word: string;
  batch: string;
  group: GridGroup;
}

export function cellText(layout: GridLayout, cell: number, of: GridTargets, names?: BatchNames): CellText {
  const members = membersOf(layout, cell);
  const batch = batchName(columnOf(layout, cell).batch, names);
  const shown = representative(layout, cell, of);
  const { group, word } = phaseOf(of.states[shown]!, of.progress?.[shown]);
  if (members.length === 1) return { title: of.hostnames[shown]!, word, batch, group };
  const first = of.hostnames[members[0]!]!;
  const last = of.hostnames[members[members.length - 1]!]!;
  return { title: `${plural(members.length, "host")}, ${first} to ${last}`, word: countsText(countsOf(members, of)), batch, group };
}

/** representative returns the target that a click on a cell picks: the first failed one, else the first. */
export function representative(layout: GridLayout, cell: number, of: GridTargets): number {
  const members = membersOf(layout, cell);
  const groups = Array.from(members, (m) => phaseOf(of.states[m]!, of.progress?.[m]).group);
  const at = (group: GridGroup) => groups.indexOf(group);
  const worst = [at("failed"), at("rolled_back")].find((i) => i >= 0) ?? 0;
  return members[worst]!;
}

function countsOf(members: Uint32Array, of: GridTargets): Record<GridGroup, number> {
  const pick = (list: readonly string[]) => Array.from(members, (m) => list[m] ?? "");
  return countCodes(codesOf(pick(of.states), of.progress ? pick(of.progress) : undefined));
}

/** batchText describes a batch for screen readers. */
export function batchText(layout: GridLayout, column: GridColumn, codes: Uint8Array, names?: BatchNames): string {
  const counts = countCodes(Uint8Array.from(layout.order.subarray(column.start, column.start + column.count), (m) => codes[m]!));
  return `${batchName(column.batch, names)}, ${plural(column.count, "host")}: ${countsText(counts)}`;
}

export type HeadKind = "none" | "number" | "name" | "full";

/** The least widths of a column for its head. Less than its digits need is a tick without text. */
const FULL_WIDTH = 132;
const NAME_WIDTH = 62;
const DIGIT_WIDTH = 8;

/** headKind returns how much of a batch's name fits above its column. */
export function headKind({ width, batch }: Pick<GridColumn, "width" | "batch">): HeadKind {
  if (width >= FULL_WIDTH) return "full";
  if (width >= NAME_WIDTH) return "name";
  return width >= String(batch + 1).length * DIGIT_WIDTH ? "number" : "none";
}

/** binNote explains cells of several hosts; undefined if each is one host. */
export function binNote(layout: GridLayout): string | undefined {
  if (layout.per === 1) return undefined;
  return `One cell is ${plural(layout.per, "host")}. It shows a failure if one of them has failed, else what most of them do.`;
}

/** toggled returns the groups of a filter after a click on one; none and all of them both mean no filter. */
export function toggled(shown: readonly GridGroup[], group: GridGroup): GridGroup[] {
  const next = GRID_GROUPS.filter((g) => (g === group ? !shown.includes(g) : shown.includes(g)));
  return next.length === GRID_GROUPS.length ? [] : next;
}

/** groupsFrom reads a filter from an address. It drops what it does not know. */
export function groupsFrom(value: unknown): GridGroup[] {
  const words = Array.isArray(value) ? value : typeof value === "string" ? value.split(",") : [];
  return GRID_GROUPS.filter((g) => words.includes(g));
}

/** targetStatesOf returns the states of the targets in some groups, for the table of targets. */
export const targetStatesOf = (groups: readonly GridGroup[]) => groups.flatMap((g) => groupLook[g].states);
