import { expect, test } from "vitest";
import type { RolloutGrid } from "~/api/types";
import { failedIn, matchHosts, sameGrid } from "./boardGrid";

const grid = (change: Partial<RolloutGrid> = {}): RolloutGrid => ({
  generation: 1,
  agent_ids: ["a", "b", "c"],
  hostnames: ["db-web-01", "web-01", "web-02"],
  batches: [0, 0, 1],
  states: ["failed", "succeeded", "pending"],
  progress: ["failed", "committed", ""],
  ...change,
});

test("lists without a change keep their identity", () => {
  const old = grid();
  expect(sameGrid(undefined, old)).toBe(old);
  expect(sameGrid(old, grid())).toBe(old);
  const next = sameGrid(old, grid({ states: ["failed", "succeeded", "offered"] }));
  expect(next.batches).toBe(old.batches);
  expect(next.hostnames).toBe(old.hostnames);
  expect(next.states).toEqual(["failed", "succeeded", "offered"]);
});

test("a list of another length is new", () => {
  const old = grid();
  expect(sameGrid(old, grid({ batches: [0, 0, 1, 1] })).batches).toHaveLength(4);
});

test("failed targets are those that failed or were rolled back", () => {
  expect(failedIn(undefined)).toEqual([]);
  expect(failedIn(grid({ states: ["failed", "rolled_back", "skipped"] }))).toEqual(["a", "b"]);
});

test("hosts are found by any part of their name, the beginning first", () => {
  expect(matchHosts(grid(), " ")).toEqual([]);
  expect(matchHosts(grid(), "WEB").map((m) => m.hostname)).toEqual(["web-01", "web-02", "db-web-01"]);
  expect(matchHosts(grid(), "web-01", 1)).toEqual([{ agentId: "b", hostname: "web-01" }]);
});

test("a name that several agents have is listed once", () => {
  expect(matchHosts(grid({ hostnames: ["x", "x", "x"] }), "x")).toHaveLength(1);
});
