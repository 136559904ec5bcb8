import { expect, test } from "vitest";
import { agent, details } from "~/testing/agent";
import { announce } from "./announce";

const now = Date.parse("2026-01-02T12:00:00Z");
const watching = (host: string) => agent({ host, version: "1.1.0", upgrade_details: details("UPG_WATCHING") });
const done = (host: string) => agent({ host, version: "1.1.0" });

test("the end of an upgrade is announced, progress is not", () => {
  expect(announce([watching("web-01")], [done("web-01")], now)).toBe("web-01 runs 1.1.0");
  expect(announce([agent({ upgrade_details: details("UPG_DOWNLOADING", { download_percent: 4 }) })], [agent({ upgrade_details: details("UPG_DOWNLOADING", { download_percent: 9 }) })], now)).toBe("");
});

test("a rollback is announced once, with its reason", () => {
  const back = agent({ upgrade_details: details("UPG_ROLLBACK", { reason: "it crashed" }) });
  expect(announce([watching("web-01")], [back], now)).toBe("web-01: Rolled back: it crashed");
  expect(announce([back], [{ ...back, last_checkin: "2026-01-02T11:00:00Z" }], now)).toBe("");
});

test("many ends at once are announced as a count", () => {
  const hosts = ["a", "b", "c", "d"];
  expect(announce(hosts.map(watching), hosts.map(done), now)).toBe("4 agents finished their upgrade");
});

test("nothing is announced for the first list", () => {
  expect(announce([], [done("web-01")], now)).toBe("");
});
