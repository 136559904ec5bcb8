import { expect, test } from "vitest";
import { exact, relative, sameDay } from "./time";

const now = Date.parse("2026-01-02T12:00:00Z");
const at = (seconds: number) => new Date(now + seconds * 1000).toISOString();

test.each([
  [0, "just now"], [-1, "just now"], [-12, "12 sec. ago"], [-59, "59 sec. ago"], [-60, "1 min. ago"], [-119, "1 min. ago"],
  [-3600, "1 hr. ago"], [-86_399, "23 hr. ago"], [-86_400, "1 day ago"], [45, "in 45 sec."], [719, "in 12 min."], [30 * 86_400 - 5, "in 30 days"],
])("%d s from now is %s", (seconds, want) => {
  expect(relative(at(seconds), now, "en")).toBe(want);
});

test("an absent or invalid time reads never", () => {
  for (const nothing of [null, undefined, "", "yesterday"]) {
    expect(relative(nothing, now, "en")).toBe("never");
    expect(exact(nothing, "en")).toBe("");
  }
});

test("times are formatted in the locale", () => {
  expect(relative(at(-120), now, "de")).toMatch(/vor 2 Min/);
  expect(exact("2026-01-02T12:00:00Z", "de")).toContain("2026");
});

test("two times of one day are of the same day", () => {
  const noon = new Date(2026, 0, 2, 12).toISOString();
  expect(sameDay(noon, new Date(2026, 0, 2, 23, 59).toISOString())).toBe(true);
  expect(sameDay(noon, new Date(2026, 0, 3, 0, 1).toISOString())).toBe(false);
});
