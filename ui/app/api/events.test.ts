import { expect, test } from "vitest";
import { agent, component, details } from "~/testing/agent";
import { eventTypes } from "./__generated__/planSchema";
import { effectsOf, freshOf, patchFound } from "./events";
import { keys } from "./queries";
import type { Agent, AgentList, FleetEvent } from "./types";

function event(type: string, subject: string, data?: Record<string, unknown>, seq = 1, at = "2026-01-02T12:00:00Z"): FleetEvent {
  return { seq, at, type, subject, data };
}
const list = (...items: Agent[]): AgentList => ({ items, total: items.length, page: 1, perPage: 10_000 });
const map = (...items: Agent[]) => new Map(items.map((a) => [a.id, a]));

test("an event with its agent patches lists, one without makes them stale", () => {
  const a = agent();
  expect(effectsOf(event("agent.upgrade", a.id, { agent: a })).patch).toBe(a);
  const bare = effectsOf(event("agent.status", a.id));
  expect(bare.patch).toBeUndefined();
  expect(bare.slow).toContainEqual(keys.agent(a.id));
});

test("an open preview is read again when an upgrade starts or ends, not for each percent", () => {
  const stale = (a: Agent) => effectsOf(event("agent.upgrade", a.id, { agent: a })).stale;
  expect(stale(agent({ upgrade_details: details("UPG_DOWNLOADING", { download_percent: 3 }) }))).toEqual([]);
  for (const ended of [agent(), agent({ upgrade_details: details("UPG_ROLLBACK") }), agent({ upgrade_details: details("UPG_REQUESTED") })]) {
    expect(stale(ended)).toEqual([keys.preview]);
  }
});

test("every event type makes something stale or patches something", () => {
  for (const type of eventTypes) {
    const { patch, stale, slow = [] } = effectsOf(event(type, "x"));
    expect(patch !== undefined || stale.length + slow.length > 0, type).toBe(true);
  }
  expect(effectsOf(event("weather.changed", "x"))).toEqual({ stale: [] });
});

test("a known agent is replaced in its place, and an unknown one is left to the server", () => {
  const [a, b] = [agent({ host: "a" }), agent({ host: "b" })];
  const fresh = { ...b, status: "updating" as const };
  expect(patchFound(list(a, b), map(fresh))).toEqual(list(a, fresh));
  const before = list(a);
  expect(patchFound(before, map(b))).toBe(before);
});

test("progress of a target makes its rollout's targets stale, not the agents", () => {
  const stale = (type: string, data?: Record<string, unknown>) => effectsOf(event(type, "a", data)).stale;
  expect(effectsOf(event("agent.upgrade_phase_changed", "a", { rollout_id: "r1" })).slow).toEqual([
    keys.targets("r1"),
    keys.grid("r1"),
    keys.rollout("r1"),
    keys.why,
  ]);
  expect(stale("rollout.progress")).not.toContainEqual(keys.agentPages);
  for (const type of ["rollout.started", "rollout.completed", "rollout.cancelled", "rollout.rollback_completed"])
    expect(stale(type), type).toContainEqual(keys.agentPages);
  for (const type of eventTypes) expect(stale(type, { rollout_id: "r1" }).flat(), type).not.toContain("rollout-preview");
});

test("an event without rollouts does not remove the rollout of an agent", () => {
  const held = agent({ rollout: { id: "r1", name: "Spring" }, desired_version: "1.1.0", last_healthy_version: "1.0.0" });
  const bare = agent({ status: "updating" });
  expect(freshOf(held, bare)).toMatchObject({ status: "updating", rollout: { id: "r1" }, desired_version: "1.1.0", last_healthy_version: "1.0.0" });
  expect(freshOf(held, agent({ desired_version: "1.0.0" })).rollout).toBeUndefined();
  expect(freshOf(undefined, bare)).toBe(bare);
  expect(patchFound(list(held), map(bare)).items[0]!.rollout).toEqual({ id: "r1", name: "Spring" });
});

test("an event keeps what a page has read about the rollout and the commands of a component", () => {
  const commands = [{ name: "upgrade", allowed: true }];
  const held = agent({
    components: [component({ rollout: { id: "r1", name: "Spring" }, desired_version: "2.5.0" }), component({ id: "db", name: "db", commands })],
    desired_version: "1.0.0",
  });
  const fresh = freshOf(
    held,
    agent({ components: [component({ status: "STARTING", desired_version: "2.4.0" }), component({ id: "db", name: "db", desired_version: "9.0.0" })] }),
  );
  expect(fresh.components[0]).toMatchObject({ status: "STARTING", rollout: { id: "r1" }, desired_version: "2.5.0" });
  expect(fresh.components[1]).toMatchObject({ desired_version: "9.0.0" });
  expect(fresh.components[1]!.rollout).toBeUndefined();
  expect(fresh.components[1]!.commands).toEqual(commands);
});
