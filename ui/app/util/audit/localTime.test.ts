import { expect, test } from "vitest";
import { fromLocal, toLocal } from "./localTime";

test("a time survives the field", () => {
  expect(fromLocal(toLocal("2026-01-02T10:30:00.000Z"))).toBe("2026-01-02T10:30:00.000Z");
  expect(toLocal("nonsense")).toBeUndefined();
  expect(fromLocal("")).toBeUndefined();
});
