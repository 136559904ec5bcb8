import { expect, test } from "vitest";
import { MockFleet } from "./fleet";
import { QueryError, read, suggest } from "./query";

const fleet = new MockFleet(() => Date.parse("2026-01-02T12:00:00Z"), 12);
const hosts = (query: string) => fleet.list(false).filter(read(query)).map((a) => (a.local_metadata as { host: { hostname: string } }).host.hostname).join(" ");

test.each([
  ["local_metadata.host.hostname.keyword: web-*", "web-01 web-02 web-03"],
  ["local_metadata.host.hostname: WEB and not agent.version: 1.1.0", "web-01 web-02 web-03"],
  ["agent.version > 1.0.0", "api-01"],
  ["tags: (edge or stateful) and status: online", "db-01 db-02 edge-ams-01"],
  ["(status: offline or status: degraded) and tags: *", "api-02 edge-fra-01"],
  ["stateful", "db-01 db-02"],
  ["nothing: here", ""],
])("in the mock %s finds %s", (query, want) => expect(hosts(query)).toBe(want));

test("the mock shows the position of an invalid query", () => {
  expect(() => read("status: online and (")).toThrow(new QueryError("status: online and (", 20, "a field or a value"));
  expect(() => read("status: online )")).toThrow(/\nstatus: online \)\n {15}\^$/);
});

test("suggestions of the mock have positions in bytes", () => {
  const all = [...fleet.agents.values()];
  expect(suggest(all, "tags: ü and sta", 16)).toMatchObject([{ kind: "field", text: "status", from: 13, to: 16 }]);
  expect(suggest(all, "tags: st", 8)).toEqual([{ kind: "value", text: "stateful ", from: 6, to: 8 }]);
});
