import { expect, test } from "vitest";
import { exact, relative, sameDay, shortTime } from "./time";

const now = Date.parse("2026-01-02T12:00:00Z");
const at = (seconds: number) => new Date(now + seconds * 1000).toISOString();

test.each([
  [0, "just now"],
  [-1, "just now"],
  [-12, "12 s ago"],
  [-59, "59 s ago"],
  [-60, "1 min ago"],
  [-119, "1 min ago"],
  [-3600, "1 h ago"],
  [-86_399, "23 h ago"],
  [-86_400, "1 day ago"],
  [45, "in 45 s"],
  [719, "in 12 min"],
  [30 * 86_400 - 5, "in 30 days"],
])("%d s from now is %s", (seconds, want) => {
  expect(relative(at(seconds), now)).toBe(want);
});

test("an absent or invalid time reads never", () => {
  for (const nothing of [null, undefined, "", "yesterday"]) {
    expect(relative(nothing, now)).toBe("never");
    expect(exact(nothing, "en")).toBe("");
  }
});

test("dates are formatted in the locale", () => {
  expect(exact("2026-01-02T12:00:00Z", "de")).toContain("2026");
});

test("two times of one day are of the same day", () => {
  const noon = new Date(2026, 0, 2, 12).toISOString();
  expect(sameDay(noon, new Date(2026, 0, 2, 23, 59).toISOString())).toBe(true);
  expect(sameDay(noon, new Date(2026, 0, 3, 0, 1).toISOString())).toBe(false);
});

test.each([
  [0, "just now"],
  [-12, "12 s ago"],
  [-90, "1 min ago"],
  [-7200, "2 h ago"],
  [-86_400, "Jan 1"],
  [-86_400 * 40, "Nov 23, 2025"],
  [86_400 * 2, "Jan 4"],
])("%d s from now is %s in a narrow column", (seconds, want) => {
  expect(shortTime(at(seconds), now, "en")).toBe(want);
});
