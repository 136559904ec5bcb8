/**
 * Where the cells of a rollout's grid are: one cell a host and one column a batch, as large as the
 * box allows. A batch fills its column from the top, and then the next line of cells to the right.
 */

export interface GridBox {
  width: number;
  maxHeight?: number;
  minCell?: number;
  maxCell?: number;
}

export interface GridColumn {
  batch: number;
  /** Hosts of the batch. */
  count: number;
  /** The batch's hosts are order[start .. start+count). */
  start: number;
  firstCell: number;
  cells: number;
  x: number;
  width: number;
}

export interface GridLayout {
  /** Side of a cell; the distance to the next is cell + gap. */
  cell: number;
  gap: number;
  rows: number;
  /** Hosts in a cell; the last cell of a batch may have fewer. */
  per: number;
  columns: GridColumn[];
  cells: number;
  /** Indexes of the targets by batch, in the rollout's order within one. */
  order: Uint32Array;
  /** Wider than the box if even the smallest cells do not fit: it scrolls. */
  width: number;
  height: number;
}

const MAX_HEIGHT = 260;
const MIN_CELL = 4;
const MAX_CELL = 18;
/** Below this height a grid of few hosts would be a line. */
const FEW_ROWS = 5;
/** Between batches. It grows to the second where there is space. */
const MIN_BETWEEN = 5;
const MAX_BETWEEN = 16;
/** Many batches with few hosts have a smaller one. */
const TIGHT_BETWEEN = 1;

/** Small cells have a gap of one pixel, large ones of two. */
const gapOf = (cell: number) => (cell >= 8 ? 2 : 1);

/** layOut places all targets of a rollout, given the batch of each. */
export function layOut(batches: readonly number[], box: GridBox): GridLayout {
  const { maxHeight = MAX_HEIGHT, minCell = MIN_CELL, maxCell = MAX_CELL } = box;
  const width = Math.max(1, Math.floor(box.width));
  const { order, groups } = sortByBatch(batches);
  const sizes = groups.map((g) => g.count);
  const rowsOf = (cell: number) => Math.max(1, Math.floor((maxHeight + gapOf(cell)) / (cell + gapOf(cell))));
  const fits = (cell: number, rows: number, per: number, between: number) => widthOf(sizes, cell, rows, per, between) <= width;

  for (let cell = maxCell; cell >= minCell; cell--) {
    if (!fits(cell, rowsOf(cell), 1, MIN_BETWEEN)) continue;
    return place(
      order,
      groups,
      cell,
      fewestRows(sizes, rowsOf(cell), (rows) => fits(cell, rows, 1, MIN_BETWEEN)),
      1,
      width,
    );
  }
  const rows = rowsOf(minCell);
  const between = fits(minCell, rows, Number.MAX_SAFE_INTEGER, MIN_BETWEEN) ? MIN_BETWEEN : TIGHT_BETWEEN;
  const largest = Math.max(1, ...sizes);
  let low = 1;
  let high = largest; // one cell a batch: no larger bin is narrower
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (fits(minCell, rows, middle, between)) high = middle;
    else low = middle + 1;
  }
  // Columns cannot be narrower than a cell: if that is too wide, larger bins would only hide hosts.
  const per = fits(minCell, rows, low, between) ? low : Math.max(1, Math.ceil(largest / rows));
  return place(order, groups, minCell, rows, per, width);
}

interface Group {
  batch: number;
  count: number;
  start: number;
}

function sortByBatch(batches: readonly number[]): { order: Uint32Array; groups: Group[] } {
  const sizes = new Map<number, number>();
  for (const b of batches) sizes.set(b, (sizes.get(b) ?? 0) + 1);
  let start = 0;
  const groups = [...sizes]
    .sort((a, b) => a[0] - b[0])
    .map(([batch, count]) => {
      const group = { batch, count, start };
      start += count;
      return group;
    });
  const next = new Map(groups.map((g) => [g.batch, g.start]));
  const order = new Uint32Array(batches.length);
  for (let i = 0; i < batches.length; i++) {
    const at = next.get(batches[i]!)!;
    order[at] = i;
    next.set(batches[i]!, at + 1);
  }
  return { order, groups };
}

const linesOf = (count: number, rows: number, per: number) => Math.ceil(Math.ceil(count / per) / rows);

function widthOf(sizes: readonly number[], cell: number, rows: number, per: number, between: number): number {
  const gap = gapOf(cell);
  let width = 0;
  for (const count of sizes) width += linesOf(count, rows, per) * (cell + gap) - gap;
  return width + Math.max(0, sizes.length - 1) * (between + gap);
}

/** A grid of few hosts is as low as its width allows. */
function fewestRows(sizes: readonly number[], most: number, fits: (rows: number) => boolean): number {
  const largest = Math.max(1, ...sizes);
  let low = Math.min(most, largest, FEW_ROWS);
  let high = Math.min(most, largest);
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (fits(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

function place(order: Uint32Array, groups: readonly Group[], cell: number, rows: number, per: number, box: number): GridLayout {
  const gap = gapOf(cell);
  const sizes = groups.map((g) => g.count);
  const spaces = Math.max(1, groups.length - 1);
  const tight = widthOf(sizes, cell, rows, per, TIGHT_BETWEEN);
  const between = Math.max(TIGHT_BETWEEN, Math.min(MAX_BETWEEN, TIGHT_BETWEEN + Math.floor((box - tight) / spaces)));
  let x = 0;
  let cells = 0;
  const columns = groups.map((g): GridColumn => {
    const n = Math.ceil(g.count / per);
    const width = linesOf(g.count, rows, per) * (cell + gap) - gap;
    const column = { ...g, firstCell: cells, cells: n, x, width };
    x += width + gap + between;
    cells += n;
    return column;
  });
  const width = widthOf(sizes, cell, rows, per, between);
  return { cell, gap, rows, per, columns, cells, order, width: Math.max(0, width), height: rows * (cell + gap) - gap };
}

/** columnOf returns the column that has a cell, by bisection. */
export function columnOf(layout: GridLayout, cell: number): GridColumn {
  let low = 0;
  let high = layout.columns.length - 1;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (layout.columns[middle]!.firstCell <= cell) low = middle;
    else high = middle - 1;
  }
  return layout.columns[low]!;
}

/** originOf returns the left upper corner of a cell. */
export function originOf(layout: GridLayout, cell: number): { x: number; y: number } {
  const column = columnOf(layout, cell);
  const at = cell - column.firstCell;
  const pitch = layout.cell + layout.gap;
  return { x: column.x + Math.floor(at / layout.rows) * pitch, y: (at % layout.rows) * pitch };
}

/** cellAt returns the cell at a point, or -1. The gap after a cell belongs to it: small cells are hard to hit. */
export function cellAt(layout: GridLayout, x: number, y: number): number {
  const pitch = layout.cell + layout.gap;
  const row = Math.floor(y / pitch);
  if (row < 0 || row >= layout.rows) return -1;
  const column = layout.columns.findLast((c) => c.x <= x);
  if (!column || x >= column.x + column.width + layout.gap) return -1;
  const at = Math.floor((x - column.x) / pitch) * layout.rows + row;
  return at < column.cells ? column.firstCell + at : -1;
}

/** membersOf returns the indexes of the targets in a cell. */
export function membersOf(layout: GridLayout, cell: number): Uint32Array {
  const column = columnOf(layout, cell);
  const from = column.start + (cell - column.firstCell) * layout.per;
  return layout.order.subarray(from, Math.min(from + layout.per, column.start + column.count));
}

/** cellOf returns the cell that has a target. */
export function cellOf(layout: GridLayout, target: number): number {
  const at = layout.order.indexOf(target);
  const column = layout.columns.find((c) => at >= c.start && at < c.start + c.count);
  return column ? column.firstCell + Math.floor((at - column.start) / layout.per) : -1;
}

/** moved returns the cell that a key leads to, or undefined if the key does not move. */
export function moved(layout: GridLayout, from: number, key: string): number | undefined {
  if (layout.cells === 0) return undefined;
  const column = columnOf(layout, from);
  const last = column.firstCell + column.cells - 1;
  const nth = layout.columns.indexOf(column);
  const at = from - column.firstCell;
  const row = at % layout.rows;
  /** The cell of a column in this row, or its last one if the row is shorter there. */
  const beside = (next: GridColumn | undefined, line: number) => (next ? next.firstCell + Math.min(next.cells - 1, line * layout.rows + row) : from);
  switch (key) {
    case "ArrowDown":
      return Math.min(layout.cells - 1, from + 1);
    case "ArrowUp":
      return Math.max(0, from - 1);
    case "ArrowRight":
      if (from + layout.rows <= last) return from + layout.rows;
      // The last line of a batch may be shorter than this row.
      if (Math.floor(at / layout.rows) < Math.floor((column.cells - 1) / layout.rows)) return last;
      return beside(layout.columns[nth + 1], 0);
    case "ArrowLeft": {
      if (at >= layout.rows) return from - layout.rows;
      const before = layout.columns[nth - 1];
      return beside(before, before ? Math.floor((before.cells - 1) / layout.rows) : 0);
    }
    case "Home":
      return column.firstCell;
    case "End":
      return last;
    case "PageDown":
      return layout.columns[nth + 1]?.firstCell ?? last;
    case "PageUp":
      return at > 0 ? column.firstCell : (layout.columns[nth - 1]?.firstCell ?? column.firstCell);
  }
  return undefined;
}
