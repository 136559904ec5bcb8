import { describe, expect, it } from "vitest";
import { cellAt, cellOf, layOut, membersOf, moved, originOf } from "./gridLayout";

/** A generator with a seed, so that a failure can be repeated. */
function random(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** Targets in mixed order, as the server may send them. */
function someBatches(r: (below: number) => number): number[] {
  const batches = 1 + r(30);
  const hosts = 1 + r([20, 300, 4000, 30000][r(4)]!);
  return Array.from({ length: hosts }, () => r(batches) + (r(3) === 0 ? r(batches) : 0));
}

const seeds = Array.from({ length: 60 }, (_, i) => i + 1);

describe("layOut", () => {
  it.each(seeds)("places each target once, without overlap, and finds it again (seed %i)", (seed) => {
    const r = random(seed);
    const batches = someBatches(r);
    const width = 320 + r(1300);
    const layout = layOut(batches, { width });
    const seen = new Set<number>();
    const places = new Set<string>();
    const wrong: string[] = []; // one expectation a cell would take minutes
    const check = (holds: boolean, what: string, cell: number) => void (holds || wrong.push(`${what} of cell ${cell}`));
    for (let cell = 0; cell < layout.cells; cell++) {
      const members = membersOf(layout, cell);
      const first = batches[members[0]!];
      check(members.length > 0 && members.length <= layout.per, "size", cell);
      check(
        members.every((m) => batches[m] === first),
        "batch",
        cell,
      );
      for (const m of members) seen.add(m);
      const { x, y } = originOf(layout, cell);
      check(x + layout.cell <= layout.width && y + layout.cell <= layout.height, "place", cell);
      places.add(`${x} ${y}`);
      check(cellAt(layout, x, y) === cell && cellAt(layout, x + layout.cell - 1, y + layout.cell - 1) === cell, "way back", cell);
    }
    expect(wrong).toEqual([]);
    expect(seen.size).toBe(batches.length);
    expect(places.size).toBe(layout.cells);
    expect(layout.height).toBeLessThanOrEqual(260);
    expect(layout.width).toBeLessThanOrEqual(width);
    const one = r(batches.length);
    expect([...membersOf(layout, cellOf(layout, one))]).toContain(one);
  });

  it.each(seeds.slice(0, 20))("keeps the keyboard inside, and leads it to every cell (seed %i)", (seed) => {
    const r = random(seed);
    const layout = layOut(someBatches(r), { width: 900 });
    const keys = ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End", "PageUp", "PageDown"];
    const ends = Array.from({ length: 300 }, () => moved(layout, r(layout.cells), keys[r(keys.length)]!)!);
    expect(Math.min(...ends)).toBeGreaterThanOrEqual(0);
    expect(Math.max(...ends)).toBeLessThan(layout.cells);
    let at = 0;
    while (at < layout.cells - 1 && moved(layout, at, "ArrowDown") === at + 1) at++;
    expect(at).toBe(layout.cells - 1);
  });

  it("shows one host a cell up to 10,000 hosts", () => {
    const batches = Array.from({ length: 10_000 }, (_, i) => Math.floor(i / 1250));
    const layout = layOut(batches, { width: 1200 });
    expect(layout.per).toBe(1);
    expect(layout.cells).toBe(10_000);
    expect(layout.cell).toBeGreaterThanOrEqual(4);
  });

  it("bins more hosts than fit, with the smallest bin", () => {
    const batches = Array.from({ length: 100_000 }, (_, i) => Math.floor(i / 12_500));
    const layout = layOut(batches, { width: 1200 });
    expect(layout.per).toBeGreaterThanOrEqual(9);
    expect(layout.per).toBeLessThanOrEqual(10);
    expect(layout.width).toBeLessThanOrEqual(1200);
  });

  it("has large cells and low columns for few hosts", () => {
    expect(layOut([0, 0, 0], { width: 1200 })).toMatchObject({ cell: 18, rows: 3, height: 58, width: 18 });
    const layout = layOut(
      Array.from({ length: 300 }, (_, i) => (i < 3 ? 0 : i < 30 ? 1 : 2)),
      { width: 1200 },
    );
    expect(layout.cell).toBe(18);
    expect(layout.height).toBeLessThan(150);
  });

  it("scrolls if not even one cell a batch fits", () => {
    const layout = layOut(
      Array.from({ length: 400 }, (_, i) => i),
      { width: 320 },
    );
    expect(layout.cells).toBe(400);
    expect(layout.per).toBe(1);
    expect(layout.width).toBeGreaterThan(320);
  });

  it("is empty without targets", () => {
    const layout = layOut([], { width: 320 });
    expect(layout).toMatchObject({ cells: 0, columns: [], width: 0 });
    expect(cellAt(layout, 1, 1)).toBe(-1);
    expect(moved(layout, 0, "ArrowDown")).toBeUndefined();
  });

  it("moves between batches by rows", () => {
    const layout = layOut([...Array<number>(10).fill(0), ...Array<number>(3).fill(1)], { width: 1200 });
    expect(layout.rows).toBe(5);
    expect(moved(layout, 9, "ArrowRight")).toBe(12); // the second batch has only three rows
    expect(moved(layout, 4, "ArrowRight")).toBe(9);
    expect(moved(layout, 10, "ArrowLeft")).toBe(5);
    expect(moved(layout, 2, "PageDown")).toBe(10);
    expect(moved(layout, 12, "PageUp")).toBe(10);
    expect(moved(layout, 10, "PageUp")).toBe(0);
    expect(moved(layout, 3, "Enter")).toBeUndefined();
  });
});
