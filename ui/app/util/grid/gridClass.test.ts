import { describe, expect, it } from "vitest";
import { TARGET_STATES } from "~/util/rollout/rolloutCounts";
import { codeOfBin, codesOf, countCodes, countsText, GRID_GROUPS, groupLook, phaseOf } from "./gridClass";

const code = (group: (typeof GRID_GROUPS)[number]) => GRID_GROUPS.indexOf(group);

describe("phaseOf", () => {
  it("prefers the progress, which is finer than the state", () => {
    expect(phaseOf("upgrading", "downloading")).toEqual({ group: "upgrading", word: "Downloading", progress: "downloading" });
    expect(phaseOf("upgrading", "")).toEqual({ group: "upgrading", word: "Installing", progress: "installing" });
    expect(phaseOf("succeeded", "watching").word).toBe("Watching");
  });
  it("counts an unknown state of a newer server neither as a success nor as a failure", () => {
    expect(phaseOf("teleporting")).toEqual({ group: "scheduled", word: "teleporting" });
  });
  it("lists each state of a target in the filter of exactly its own group", () => {
    for (const state of TARGET_STATES) {
      expect(GRID_GROUPS.filter((g) => groupLook[g].states.includes(state))).toEqual([phaseOf(state).group]);
    }
  });
});

describe("groups", () => {
  it("never differ by colour alone", () => {
    const looks = GRID_GROUPS.map((g) => groupLook[g]);
    const bad = looks.filter((l) => l.tone === "bad").map((l) => l.mark);
    expect(new Set(bad).size).toBe(bad.length);
    expect(new Set(looks.map((l) => `${l.tone} ${l.mark}`)).size).toBe(looks.length);
    const plain = looks.filter((l) => l.mark === "none").map((l) => l.tone);
    expect(plain).toEqual(["move", "ok"]); // these two differ in lightness
  });
  it("are counted", () => {
    const codes = codesOf(["pending", "succeeded", "failed", "succeeded"], ["", "committed", "failed", "watching"]);
    expect(countCodes(codes)).toMatchObject({ scheduled: 1, committed: 1, watching: 1, failed: 1, skipped: 0 });
    expect(countsText(countCodes(codes))).toBe("1 failed, 1 watching, 1 committed, 1 scheduled");
    expect(countsText(countCodes(new Uint8Array()))).toBe("no hosts");
  });
});

describe("codeOfBin", () => {
  const counts = (of: Partial<Record<(typeof GRID_GROUPS)[number], number>>) => GRID_GROUPS.map((g) => of[g] ?? 0);
  it("shows a failure even if it is the only one", () => {
    expect(codeOfBin(counts({ committed: 11, failed: 1 }))).toBe(code("failed"));
    expect(codeOfBin(counts({ committed: 11, rolled_back: 1 }))).toBe(code("rolled_back"));
  });
  it("else shows the most frequent group", () => {
    expect(codeOfBin(counts({ committed: 2, watching: 5 }))).toBe(code("watching"));
  });
});
