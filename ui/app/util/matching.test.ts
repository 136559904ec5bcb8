import { expect, test } from "vitest";
import { agent } from "~/testing/agent";
import { countOf, orderOf, selectionOf } from "./matching";
import type { AgentsSearch } from "./search";
import { GROUPS, groupOf, statusesOf } from "./status";

test.each<[string, AgentsSearch, string]>([
  ["the query of the list and nothing else", { kuery: "tags: a or tags: b", sort: "host", desc: true }, "tags: a or tags: b"],
  ["a fleet, which has to be named", {}, "*"],
  ["filters behind a query in parentheses", { kuery: "tags: a or tags: b", status: ["unhealthy"] }, "(tags: a or tags: b) and status: (error or degraded)"],
  ["filters alone", { policy: 'a "b"', version: "1.0.0", action: "x" }, 'agent.version: "1.0.0" and policy_id: "a \\"b\\"" and upgrade_details.action_id: "x"'],
  ["hidden groups that are shown", { status: ["inactive"], inactive: true }, "status: (inactive)"],
])("orderOf selects by %s", (_, search, kuery) => expect(orderOf(search)).toEqual({ kuery }));

test.each<[string, AgentsSearch]>([
  ["text that only this page understands", { kuery: "a", q: "web" }],
  ["agents that were named", { ids: ["a"] }],
  ["a hidden status, whose agents the list does not show", { kuery: "*", status: ["healthy", "unenrolled"] }],
])("no query selects the agents of %s", (_, search) => expect(orderOf(search)).toHaveProperty("why"));

test("every status is in the query of its group", () => {
  for (const group of GROUPS) {
    expect(statusesOf(group).length).toBeGreaterThan(0);
    for (const status of statusesOf(group)) expect(groupOf(status)).toBe(group);
  }
});

test("a preview requests the ids, or the query with includeInactive", () => {
  expect(selectionOf([agent()])).toEqual({ agents: ["id-of-web-01"] });
  expect(selectionOf({ kuery: "tags: a", inactive: true, count: 111 })).toEqual({ agents: "tags: a", includeInactive: true });
  expect(countOf({ kuery: "tags: a", inactive: false, count: 111 })).toBe(111);
  expect(countOf([agent()])).toBe(1);
});
