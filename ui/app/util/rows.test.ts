import { expect, test } from "vitest";
import { moveRow } from "./rows";

test("j enters the table at its first row, and ends at its last", () => {
  expect(moveRow("j", -1, 3)).toBe(0);
  expect(moveRow("j", 2, 3)).toBe(2);
  expect(moveRow("k", 0, 3)).toBe(0);
  expect(moveRow("j", -1, 0)).toBe(-1);
});
