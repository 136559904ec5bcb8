import { describe, expect, it } from "vitest";
import { GRID_GROUPS } from "./gridClass";
import { layOut } from "./gridLayout";
import { binNote, cellText, groupsFrom, headKind, representative, targetStatesOf, toggled } from "./gridText";

const hosts = (n: number) => Array.from({ length: n }, (_, i) => `web-${i}`);

describe("cells", () => {
  it("are named by their host, its state and its batch", () => {
    const layout = layOut([0, 1], { width: 600 });
    const of = { states: ["upgrading", "pending"], progress: ["restarting", ""], hostnames: hosts(2) };
    expect(cellText(layout, 0, of)).toEqual({ title: "web-0", word: "Restarting", batch: "Batch 1", group: "upgrading" });
    expect(cellText(layout, 1, of, { 1: "Late hosts" }).batch).toBe("Late hosts");
    expect(binNote(layout)).toBeUndefined();
  });
  it("of several hosts count them, and pick the failed one", () => {
    const layout = { ...layOut(Array<number>(4).fill(0), { width: 600 }), per: 4, cells: 1 };
    const of = { states: ["succeeded", "succeeded", "rolled_back", "failed"], hostnames: hosts(4) };
    expect(cellText(layout, 0, of)).toMatchObject({ title: "4 hosts, web-0 to web-3", word: "1 failed, 1 rolled back, 2 committed", group: "failed" });
    expect(representative(layout, 0, of)).toBe(3);
    expect(binNote(layout)).toContain("One cell is 4 hosts");
  });
});

it("shows as much of a batch's name as fits", () => {
  expect([8, 70, 140].map((width) => headKind({ width, batch: 0 }))).toEqual(["number", "name", "full"]);
  expect(headKind({ width: 8, batch: 99 })).toBe("none");
});

describe("the filter", () => {
  it("has no filter for no group and for all of them", () => {
    expect(toggled([], "failed")).toEqual(["failed"]);
    expect(toggled(["failed"], "failed")).toEqual([]);
    expect(
      toggled(
        GRID_GROUPS.filter((g) => g !== "failed"),
        "failed",
      ),
    ).toEqual([]);
  });
  it("is read from an address, and translated for the table of targets", () => {
    expect(groupsFrom("failed,nonsense,committed")).toEqual(["committed", "failed"]);
    expect(groupsFrom(7)).toEqual([]);
    expect(targetStatesOf(["upgrading", "failed"])).toEqual(["offered", "upgrading", "failed"]);
  });
});
