import { expect, test } from "vitest";
import type { TimelineEntry } from "~/api/types";
import { byDay, entryTitle, lengthOf, phasesOf, stateWords, stepsOf } from "./timeline";

const at = (s: number) => new Date(Date.parse("2026-01-02T10:00:00Z") + s * 1000).toISOString();
const now = Date.parse(at(100));

const entry = (change: Partial<TimelineEntry> = {}): TimelineEntry => ({
  id: "e",
  at: at(0),
  kind: "upgrade",
  from: "2.4.0",
  to: "2.4.1",
  state: "watching",
  phases: [
    { state: "sent", at: at(0) },
    { state: "downloading", at: at(10) },
    { state: "downloading", at: at(11) },
    { state: "watching", at: at(60) },
  ],
  ...change,
});

test("titles name the component and the versions", () => {
  expect(entryTitle(entry())).toBe("Upgrade of the agent to 2.4.1");
  expect(entryTitle(entry({ component: "web" }))).toBe("Upgrade of web to 2.4.1");
  expect(entryTitle(entry({ component: "web", from: undefined }))).toBe("Installation of web to 2.4.1");
  expect(entryTitle(entry({ kind: "rollback", to: "2.3.0" }))).toBe("Rollback of the agent to 2.3.0");
  expect(entryTitle(entry({ kind: "enrolled", text: "The host enrolled." }))).toBe("The host enrolled.");
});

test("each phase lasts until the next one, and the last one until now", () => {
  const phases = phasesOf(entry(), now);
  expect(phases.map((p) => [p.state, p.ms, p.open])).toEqual([
    ["sent", 10_000, false],
    ["downloading", 50_000, false],
    ["watching", 40_000, true],
  ]);
  expect(phases[1]!.from).toBeCloseTo(0.1);
  expect(phases[1]!.share).toBeCloseTo(0.5);
});

test("the end of an upgrade has no length", () => {
  const e = entry({
    state: "rolled_back",
    ended_at: at(80),
    phases: [
      { state: "sent", at: at(0) },
      { state: "watching", at: at(20) },
      { state: "rolled_back", at: at(80) },
    ],
  });
  expect(phasesOf(e, now).map((p) => [p.state, p.ms, p.open])).toEqual([
    ["sent", 20_000, false],
    ["watching", 60_000, false],
    ["rolled_back", undefined, false],
  ]);
  expect(lengthOf(e, now)).toBe(80_000);
  expect(stateWords(e)).toBe("Rolled back to 2.4.0");
});

test("attempts with an error stay", () => {
  const e = entry({
    phases: [
      { state: "downloading", at: at(0), text: "no route" },
      { state: "downloading", at: at(10) },
    ],
  });
  expect(phasesOf(e, now)).toHaveLength(2);
});

test("only the watcher's verdict ends the way", () => {
  const places = (state: Parameters<typeof stepsOf>[0]) => stepsOf(state, phasesOf(entry(), now), false).map((s) => s.place);
  expect(places("watching")).toEqual(["done", "done", "done", "done", "now", "todo"]);
  expect(places("rolled_back")).toEqual(["done", "done", "done", "done", "failed", "todo"]);
  expect(places("committed")).toEqual(["done", "done", "done", "done", "done", "done"]);
  expect(places("waiting_for_host")[0]).toBe("now");
  expect(places("scheduled")).toEqual(["todo", "todo", "todo", "todo", "todo", "todo"]);
});

test("entries are grouped by day", () => {
  const days = byDay([{ at: at(0) }, { at: at(-5) }, { at: at(-86_400 * 3) }], now, "en-GB");
  expect(days.map((d) => [d.day, d.items.length])).toEqual([
    ["Today", 2],
    ["Tue, 30 December 2025", 1],
  ]);
});
