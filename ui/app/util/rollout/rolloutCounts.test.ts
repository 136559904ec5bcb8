import { expect, test } from "vitest";
import { counts } from "~/testing/rollout";
import { failedText } from "./rolloutCounts";

test("hosts that could not be given the version are counted beside those that failed", () => {
  expect(failedText(counts({ failed: 2, rolled_back: 1, skipped: 4, refused: 3 }))).toBe("3 failed, 3 refused");
  expect(failedText(counts({ skipped: 4, refused: 1_200 }))).toBe("1,200 refused");
  expect(failedText(counts({ succeeded: 4, skipped: 1, refused: 0 }))).toBeUndefined();
});
