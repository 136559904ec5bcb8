import { expect, test } from "vitest";
import type { Rollout } from "~/api/types";
import { freezeOrder, freezeState, freezeTime, localField, locksOf, ruleOf, share, usesOf, whyNotFreeze } from "./guardRails";

const rollout = (id: string, state: string, version: string, exposed: number, policies: string[] = []) =>
  ({ id, state, policies, exposure: { version, fleet: 100, exposed, limit: 20, healthy_hours: 1, needed_hours: 24 } }) as unknown as Rollout;

test("a budget is counted once for each version, the fullest first", () => {
  const uses = usesOf([
    rollout("a", "running", "2.0.0", 5),
    rollout("b", "paused", "2.1.0", 20),
    rollout("c", "running", "2.0.0", 5),
    rollout("d", "failed", "1.0.0", 9),
  ]);
  expect(uses.map((u) => [u.exposure.version, share(u.exposure), u.rollouts.length])).toEqual([
    ["2.1.0", 1, 1],
    ["2.0.0", 0.25, 2],
  ]);
  expect([share({ exposed: 0, limit: 0 }), share({ exposed: 1, limit: 0 })]).toEqual([0, 1]);
});

test("only active rollouts hold policies", () => {
  expect(locksOf([rollout("a", "running", "2.0.0", 1, ["web", "db"]), rollout("b", "completed", "2.0.0", 1, ["edge"])]).map((l) => l.policyId)).toEqual([
    "web",
    "db",
  ]);
});

test("a form of the budget names its mistakes", () => {
  expect(ruleOf({ enabled: true, percent: "20", hours: "24", per: "site 40\nring 10 %" }).rule).toEqual({
    enabled: true,
    percent: 20,
    healthy_hours: 24,
    per: [
      { label: "site", percent: 40 },
      { label: "ring", percent: 10 },
    ],
  });
  expect(Object.keys(ruleOf({ enabled: true, percent: "0", hours: "-1", per: "site" }).errors)).toEqual(["percent", "hours", "per"]);
});

test("a freeze ends after it starts, and not in the past", () => {
  const now = Date.parse("2026-01-02T00:00:00Z");
  const at = (from: string, to: string) => whyNotFreeze({ name: "x", from, to }, now);
  expect(at("2026-01-03T00:00", "2026-01-04T00:00")).toBeNull();
  expect(at("2026-01-05T00:00", "2026-01-04T00:00")).toBe("It ends before it starts.");
  expect(at("2025-01-03T00:00", "2025-01-04T00:00")).toBe("It has ended already.");
  expect(freezeState({ id: "", name: "", created_at: "", created_by: "", from: "2026-01-01T00:00:00Z", to: "2026-01-02T00:00:01Z" }, now)).toBe("now");
});

test("what is in force comes first, then what comes next", () => {
  const now = Date.parse("2026-01-10T00:00:00Z");
  const freeze = (name: string, from: string, to: string) => ({
    id: name,
    name,
    created_at: "",
    created_by: "",
    from: `2026-01-${from}T00:00:00Z`,
    to: `2026-01-${to}T00:00:00Z`,
  });
  const list = [freeze("old", "01", "02"), freeze("later", "20", "21"), freeze("next", "12", "13"), freeze("now", "09", "11"), freeze("past", "03", "04")];
  expect(freezeOrder(list, now).map((f) => f.name)).toEqual(["now", "next", "later", "past", "old"]);
  expect([freezeTime(list[3]!, now), freezeTime(list[2]!, now), freezeTime(list[0]!, now)]).toEqual(["ends in 24 h", "begins in 2 d", ""]);
  expect(new Date(localField("2026-01-09T12:30:00Z")).toISOString()).toBe("2026-01-09T12:30:00.000Z");
});
