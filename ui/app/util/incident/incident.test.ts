import { expect, test } from "vitest";
import type { Incident } from "~/api/types";
import { incidentText, incidentTitle, offered, parseIncidentsSearch, sortIncidents, unresolvedText } from "./incident";

const incident = (change: Partial<Incident>): Incident => ({
  id: "i",
  category: "upgrade_stalled",
  severity: "warning",
  state: "open",
  title: "",
  text: "",
  opened_at: "2026-01-02T10:00:00Z",
  count: 1,
  commands: [],
  ...change,
});

test("critical ones come first, then the newest", () => {
  const list = [
    incident({ id: "old", opened_at: "2026-01-01T10:00:00Z" }),
    incident({ id: "new" }),
    incident({ id: "critical", severity: "critical", opened_at: "2025-01-01T10:00:00Z" }),
  ];
  expect(sortIncidents(list).map((i) => i.id)).toEqual(["critical", "new", "old"]);
});

test("texts have no ids that the page has links for", () => {
  expect(incidentTitle({ title: "rollout “CI” (up3rbscs2ll5n7rb5v3ra3trxh) has failed" })).toBe("Rollout “CI” has failed");
  expect(incidentText({ text: "has not received its policy yet" })).toBe("Has not received its policy yet.");
});

test("several incidents are offered the commands that all of them accept", () => {
  const open = incident({
    commands: [
      { name: "ack", allowed: true },
      { name: "resolve", allowed: true },
    ],
  });
  const acknowledged = incident({
    commands: [
      { name: "ack", allowed: false, reason: "It is acknowledged already." },
      { name: "resolve", allowed: true },
    ],
  });
  expect(offered([open, open])).toEqual(["ack", "resolve"]);
  expect(offered([open, acknowledged])).toEqual(["resolve"]);
});

test("incidents that were not resolved are named, with the reason", () => {
  const done = { id: "a", title: "A", result: "resolved" as const };
  expect(unresolvedText({ resolved: 1, incidents: [done, { id: "b", result: "was_resolved", text: "It was resolved by ann." }] })).toBeUndefined();
  expect(
    unresolvedText({
      resolved: 1,
      incidents: [
        done,
        { id: "b", title: "rollout “CI” has failed", result: "failed", text: "the store is read-only" },
        { id: "c", result: "not_found", text: "There is no such incident." },
      ],
    }),
  ).toBe("1 incident is resolved, 2 are not. Rollout “CI” has failed: The store is read-only. There is no such incident.");
});

test("unknown values of an address are dropped", () => {
  expect(parseIncidentsSearch({ state: "open", page: 1 })).toEqual({});
  expect(parseIncidentsSearch({ state: "resolved", page: 3 })).toEqual({ state: "resolved", page: 3 });
});
