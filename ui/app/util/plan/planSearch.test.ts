// @vitest-environment happy-dom
import { expect, test } from "vitest";
import { agentsOf, parseNewRolloutSearch, rollOutTo } from "./planSearch";
import { without } from "./planWithout";

test("a few agents are in the address, many are in the tab", () => {
  expect(rollOutTo({ kuery: "site: fra" })).toEqual({ kuery: "site: fra" });
  const few = rollOutTo({ agents: ["a", "b"] });
  expect(agentsOf(parseNewRolloutSearch(few as never))).toEqual(["a", "b"]);
  const ids = Array.from({ length: 500 }, (_, i) => `agent-${i}`);
  const many = rollOutTo({ agents: ids });
  expect(many).toEqual({ agents: "stored" });
  expect(agentsOf(parseNewRolloutSearch(many as never))).toEqual(ids);
  sessionStorage.clear();
  expect(agentsOf(many)).toBeNull();
});

test("unknown values are dropped", () => {
  expect(parseNewRolloutSearch({ kuery: 3, version: "", agents: "a,b", view: "x", more: 1 })).toEqual({ kuery: "3", agents: ["a", "b"] });
  expect(parseNewRolloutSearch({ view: "yaml" })).toEqual({ view: "yaml" });
});

test("a plan without a field keeps the others", () => {
  const plan = { strategy: { kind: "all_at_once", batch_percent: 10 }, limits: { per: [{ label: "site", max: -1 }] } };
  expect(without(plan, "strategy.batch_percent")).toEqual({ ...plan, strategy: { kind: "all_at_once" } });
  expect(without(plan, "limits.per[0].max")).toEqual({ ...plan, limits: { per: [{ label: "site" }] } });
  expect(without(plan, "pace.soak")).toBeUndefined();
});
