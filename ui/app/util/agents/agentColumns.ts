/** The columns of the agents table: which exist, which are shown, and how wide they are. */
import type { SortColumn } from "./search";

export interface AgentColumn {
  id: "host" | "health" | "version" | "upgrade" | "policy" | "seen" | "os" | "site" | "enrolled" | "message";
  header: string;
  /** Pixels; the host takes what is left. */
  width?: number;
  sort?: SortColumn;
  /** Shown until the reader chooses. */
  first: boolean;
}

export const COLUMNS: readonly AgentColumn[] = [
  { id: "host", header: "Host", sort: "host", first: true },
  { id: "health", header: "Health", width: 102, first: true },
  { id: "version", header: "Version", width: 112, sort: "version", first: true },
  { id: "upgrade", header: "Upgrade", width: 180, first: true },
  { id: "policy", header: "Policy", width: 116, sort: "policy", first: true },
  { id: "seen", header: "Last check-in", width: 116, sort: "seen", first: true },
  { id: "os", header: "OS", width: 104, first: false },
  { id: "site", header: "Site", width: 72, first: false },
  { id: "enrolled", header: "Enrolled", width: 116, sort: "enrolled", first: false },
  { id: "message", header: "Message", width: 280, first: false },
];

export type ColumnId = AgentColumn["id"];

export const FIRST_COLUMNS: readonly ColumnId[] = COLUMNS.filter((c) => c.first).map((c) => c.id);

/** shownColumns returns the chosen columns in their order. The host is always there; unknown names of an older version are dropped. */
export const shownColumns = (chosen: readonly string[]): AgentColumn[] => COLUMNS.filter((c) => c.id === "host" || chosen.includes(c.id));

/** What the host's column needs at least, with its checkbox. */
const HOST_PX = 184;

export const widthOf = (columns: readonly AgentColumn[]): number => columns.reduce((sum, c) => sum + (c.width ?? HOST_PX), 0);
