import { expect, test } from "vitest";
import type { Progress, TimelineEntry, Watch } from "~/api/types";
import { entryOf, upgradeText, upgradeTitle, upgradeToShow } from "./upgradeNow";

const now = Date.parse("2026-01-02T10:00:00Z");
const progress = (change: Partial<Progress>): Progress => ({ state: "watching", version: "2.4.1", from: "2.4.0", ...change });
const host = { last_checkin: "2026-01-02T09:00:00Z" };

test("a committed upgrade is only in the timeline", () => {
  expect(upgradeToShow({ progress: progress({ state: "committed" }) })).toBeUndefined();
  expect(upgradeToShow({ progress: progress({ state: "rolled_back" }) })).toBeDefined();
  expect(upgradeToShow({})).toBeUndefined();
});

test("titles say how it stands", () => {
  expect(upgradeTitle(progress({}))).toBe("Upgrade from 2.4.0 to 2.4.1");
  expect(upgradeTitle(progress({ state: "rolled_back" }))).toBe("Rolled back from 2.4.1 to 2.4.0");
  expect(upgradeTitle(progress({ state: "failed" }))).toBe("Upgrade to 2.4.1 failed");
  expect(upgradeTitle(progress({ rollback: true, version: "2.3.0" }))).toBe("Rollback from 2.4.0 to 2.3.0");
});

test("an offline host is waited for", () => {
  expect(upgradeText(progress({ state: "waiting_for_host" }), host, now)).toBe(
    "The upgrade waits for the host, which checked in last 1 h ago. It goes on when the host is back.",
  );
});

test("a watched version is not yet the host's", () => {
  const watch = { stage: "watching", waiting: "its first check-in", from: "2.4.0", to: "2.4.1" } as Watch;
  expect(upgradeText(progress({}), { ...host, watch }, now)).toContain("It waits for its first check-in.");
  expect(upgradeText(progress({}), { ...host, watch: { ...watch, stage: "rolling_back" } }, now)).toBe("The host's watcher puts 2.4.0 back.");
});

test("phases come from the entry of this upgrade", () => {
  const entry = (id: string, to: string, change: Partial<TimelineEntry> = {}): TimelineEntry => ({
    id,
    at: "2026-01-02T09:00:00Z",
    kind: "upgrade",
    to,
    state: "watching",
    ...change,
  });
  expect(entryOf(progress({}), [entry("c", "2.4.1", { component: "web" }), entry("old", "2.4.1", { state: "failed" }), entry("e", "2.4.1")])?.id).toBe("e");
  expect(entryOf(progress({}), [entry("x", "2.3.0")])).toBeUndefined();
});
