/** The keys that act on the rows of a table: down, up, select, expand, open. */
export type RowKey = "j" | "k" | "x" | "e" | "Enter";

/** moveRow returns the row that a key leads to; -1 stands before the first. Rows do not wrap around. */
export function moveRow(key: "j" | "k", from: number, rows: number): number {
  if (rows === 0) return -1;
  return Math.min(rows - 1, Math.max(0, from + (key === "j" ? 1 : -1)));
}
