import { expect, test } from "vitest";
import { rollout } from "~/testing/rollout";
import { againOf, isActive, isGate, isOver } from "./rollout";

test("a draft is neither active nor over", () => {
  expect([isActive("draft"), isOver("draft")]).toEqual([false, false]);
  expect([isActive("paused"), isOver("paused")]).toEqual([true, false]);
  expect([isActive("rolled_back"), isOver("rolled_back")]).toEqual([false, true]);
});

test("a pause by an operator is not a problem", () => {
  expect(isGate("operator")).toBe(false);
  expect(isGate("threshold")).toBe(true);
});

test("what failed or was refused is tried again once the rollout has ended", () => {
  const counts = { succeeded: 4, failed: 2, rolled_back: 1, skipped: 5, refused: 3 };
  expect(againOf(rollout({ state: "failed", counts }))).toBe(6);
  expect(againOf(rollout({ state: "cancelled", counts: { refused: 1, skipped: 1 } }))).toBe(1);
  expect(againOf(rollout({ state: "running", counts }))).toBe(0);
  expect(againOf(rollout({ state: "failed", rollback_of: "r0", counts }))).toBe(0);
});
