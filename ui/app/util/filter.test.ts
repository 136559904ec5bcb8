import { expect, test } from "vitest";
import { agent, details } from "~/testing/agent";
import { hostOf } from "./facts";
import { filterAgents, type AgentFilter } from "./filter";
import { parseAgentsSearch } from "./search";

const fleet = [
  agent({ host: "web-01", tags: ["prod"] }),
  agent({ host: "web-02", tags: ["staging"], status: "offline" }),
  agent({ host: "db-01", version: "1.1.0", tags: ["prod", "stateful"], policy_id: "edge" }),
  agent({ host: "db-02", status: "degraded", upgrade_details: details("UPG_FAILED") }),
];
const names: Record<string, string> = { default: "Default policy", edge: "Edge sites" };
const hosts = (filter: AgentFilter) => filterAgents(fleet, filter, (id) => names[id] ?? id).map(hostOf);

test.each([
  [{}, ["web-01", "web-02", "db-01", "db-02"]],
  [{ q: "WEB" }, ["web-01", "web-02"]],
  [{ q: "prod stateful" }, ["db-01"]],
  [{ q: "edge sites" }, ["db-01"]],
  [{ q: "1.1.0" }, ["db-01"]],
  [{ q: "nothing like it" }, []],
  [{ status: ["offline", "unhealthy"] }, ["web-02", "db-02"]],
  [{ status: [] }, ["web-01", "web-02", "db-01", "db-02"]],
  [{ version: "1.1.0" }, ["db-01"]],
  [{ policy: "edge" }, ["db-01"]],
  [{ action: "action-1" }, ["db-02"]],
  [{ ids: ["id-of-web-02", "gone"] }, ["web-02"]],
  [{ q: "web", status: ["healthy"] }, ["web-01"]],
] as [AgentFilter, string[]][])("%o shows %o", (filter, want) => {
  expect(hosts(filter)).toEqual(want);
});

test("unknown values in the address are ignored", () => {
  expect(parseAgentsSearch({ q: 7, status: ["healthy", "sleepy"], sort: "colour", desc: true, inactive: "yes", ids: "a,b" }))
    .toEqual({ q: "7", status: ["healthy"], ids: ["a", "b"] });
  expect(parseAgentsSearch({ sort: "seen", desc: true, inactive: true, version: "1.1.0" }))
    .toEqual({ sort: "seen", desc: true, inactive: true, version: "1.1.0" });
  expect(parseAgentsSearch({ status: ["sleepy"], q: "" })).toEqual({});
});
