import { expect, test } from "vitest";
import { isActive, isGate, isOver } from "./rollout";

test("a draft is neither active nor over", () => {
  expect([isActive("draft"), isOver("draft")]).toEqual([false, false]);
  expect([isActive("paused"), isOver("paused")]).toEqual([true, false]);
  expect([isActive("rolled_back"), isOver("rolled_back")]).toEqual([false, true]);
});

test("a pause by an operator is not a problem", () => {
  expect(isGate("operator")).toBe(false);
  expect(isGate("threshold")).toBe(true);
});
