import { expect, test } from "vitest";
import { eventText } from "~/util/eventText";
import { agent, component, details } from "~/testing/agent";
import { effectsOf, EVENT_TYPES, freshOf, patchList } from "./events";
import { History, PER_AGENT, phaseTimes } from "./history";
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
  expect(bare.stale).toContainEqual(keys.agents);
});

test("an open preview is read again when an upgrade starts or ends, not for each percent", () => {
  const stale = (a: Agent) => effectsOf(event("agent.upgrade", a.id, { agent: a })).stale;
  expect(stale(agent({ upgrade_details: details("UPG_DOWNLOADING", { download_percent: 3 }) }))).toEqual([]);
  for (const ended of [agent(), agent({ upgrade_details: details("UPG_ROLLBACK") }), agent({ upgrade_details: details("UPG_REQUESTED") })]) {
    expect(stale(ended)).toEqual([keys.preview]);
  }
});

test("every event type makes something stale or patches something", () => {
  for (const type of EVENT_TYPES) {
    const { patch, stale } = effectsOf(event(type, "x"));
    expect(patch !== undefined || stale.length > 0, type).toBe(true);
  }
  expect(effectsOf(event("weather.changed", "x"))).toEqual({ stale: [] });
});

test("a known agent is replaced in its place", () => {
  const [a, b] = [agent({ host: "a" }), agent({ host: "b" })];
  const fresh = { ...b, status: "updating" as const };
  expect(patchList(list(a, b), map(fresh), false)).toEqual(list(a, fresh));
});

test("a new agent comes first and is counted", () => {
  const patched = patchList({ ...list(agent({ host: "a" })), total: 41 }, map(agent({ host: "new" })), false);
  expect(patched.items.map((x) => x.id)).toEqual(["id-of-new", "id-of-a"]);
  expect(patched.total).toBe(42);
});

test("an unenrolled agent is removed from a list without inactive agents, and stays in one with them", () => {
  const a = agent({ host: "a" });
  const gone = { ...a, status: "unenrolled" as const };
  expect(patchList(list(a), map(gone), false)).toEqual({ ...list(), total: 0 });
  expect(patchList(list(a), map(gone), true)).toEqual(list(gone));
});

test("without a change the list is the same object, so nothing is drawn", () => {
  const before = list(agent({ host: "a" }));
  expect(patchList(before, new Map(), false)).toBe(before);
  expect(patchList(before, map(agent({ host: "x", status: "unenrolled" })), false)).toBe(before);
});

test("the events of an agent are stored newest first, with progress as one entry", () => {
  const history = new History(null);
  const up = (seq: number, state: "UPG_DOWNLOADING" | "UPG_EXTRACTING", percent?: number) =>
    history.add(event("agent.upgrade", "a", { agent: agent({ id: "a", upgrade_details: details(state, { download_percent: percent }) }) }, seq, `2026-01-02T12:00:0${seq}Z`));
  up(1, "UPG_DOWNLOADING", 10);
  up(2, "UPG_DOWNLOADING", 60);
  up(3, "UPG_EXTRACTING");
  up(3, "UPG_EXTRACTING"); // a resumed stream repeats itself
  expect(history.of("a").map((e) => e.state)).toEqual(["UPG_EXTRACTING", "UPG_DOWNLOADING"]);
  expect(phaseTimes(history.of("a"), "action-1").get("UPG_DOWNLOADING")).toBe("2026-01-02T12:00:01Z");
  expect(phaseTimes(history.of("a"), "another").size).toBe(0);
  const observed = (seq: number, component: string) =>
    history.add(event("agent.component", "a", { component, status: "STARTING", upgrade_details: details("UPG_WATCHING") }, seq, `2026-01-02T12:00:0${seq}Z`));
  observed(4, "web");
  observed(5, "web");
  observed(6, "db");
  expect(history.of("a").map((e) => e.component)).toEqual(["db", "web", undefined, undefined]);
});

test("a rollback is told once, though the watcher, the agent, the action and the rollout each report it", () => {
  const history = new History(null);
  const back = details("UPG_ROLLBACK", { reason: "it crashed" });
  const watch = (stage: string) => agent({ id: "a", upgrade_details: back, watch: { stage, action_id: back.action_id, from: "1.0.0", to: "1.1.0", reason: { code: "crash_loop", text: "it crashed" } } as never });
  let seq = 0;
  const add = (type: string, data: Record<string, unknown>, subject = "a") => history.add(event(type, subject, data, ++seq));
  add("agent.upgrade", { agent: agent({ id: "a", upgrade_details: details("UPG_WATCHING") }) });
  add("agent.watch", { agent: watch("rolling_back") });
  add("agent.upgrade", { agent: agent({ id: "a", upgrade_details: back }) });
  add("agent.status", { agent: agent({ id: "a", upgrade_details: back }) });
  add("action.result", { agent_id: "a", error: "it crashed" }, back.action_id);
  add("agent.watch", { agent: watch("rolled_back") });
  add("agent.upgrade", { agent: agent({ id: "a", upgrade_details: back }) });
  add("agent.upgrade_completed", { rollout_id: "r", state: "rolled_back", error: "it crashed" });
  expect(history.of("a").map(eventText)).toEqual(["Status became online", "Rolled back from 1.1.0: it crashed", "Watching the new version"]);

  // The next upgrade's end is another cause.
  add("agent.upgrade", { agent: agent({ id: "a", upgrade_details: details("UPG_DOWNLOADING") }) });
  add("agent.upgrade", { agent: agent({ id: "a", upgrade_details: details("UPG_FAILED", { error_msg: "disk full" }) }) });
  expect(history.of("a").map(eventText)[0]).toBe("Upgrade to 1.1.0 failed: disk full");
  expect(history.of("a")).toHaveLength(5);
});

test("the end of a component's upgrade is shown once, and later events are news of the component", () => {
  const history = new History(null);
  let seq = 0;
  const add = (type: string, data: Record<string, unknown>, subject = "a") => history.add(event(type, subject, data, ++seq));
  const web = (status: string, upgrade_status: string, state: "UPG_ROLLBACK" | "UPG_FAILED", action_id = "action-1") =>
    add("agent.component", { component: "web", version: "1.0.0", status, upgrade_status, target_version: "1.1.0", action_id, upgrade_details: details(state, { error_msg: "no answer" }) });
  web("STARTING", "started", "UPG_ROLLBACK");
  web("STARTING", "rolled_back", "UPG_FAILED");
  add("action.result", { agent_id: "a", error: "no answer" }, "action-1");
  web("HEALTHY", "rolled_back", "UPG_FAILED");
  web("FAILED", "rolled_back", "UPG_FAILED");
  const texts = ["web: 1.0.0, FAILED", "web: 1.0.0, HEALTHY", "web: Rolled back from 1.1.0: no answer", "web: Rolling back from 1.1.0: no answer"];
  expect(history.of("a").map(eventText)).toEqual(texts);

  // Another component, and an order on the host, which has no action.
  add("agent.component", { component: "db", version: "1.0.0", status: "HEALTHY", target_version: "1.1.0", upgrade_details: details("UPG_FAILED") });
  web("STARTING", "started", "UPG_ROLLBACK", "");
  web("STARTING", "rolled_back", "UPG_FAILED", "");
  expect(history.of("a").map(eventText)).toEqual([texts[2], texts[3], "db: Upgrade to 1.1.0 failed", ...texts]);
});

test("the events of an agent are bounded, and survive a reload", () => {
  const storage = new Map<string, string>();
  const session = { getItem: (k: string) => storage.get(k) ?? null, setItem: (k: string, v: string) => void storage.set(k, v) };
  const history = new History(session);
  for (let i = 1; i <= PER_AGENT + 5; i++) history.add(event("agent.status", "a", { agent: agent({ id: "a" }) }, i));
  expect(history.of("a")).toHaveLength(PER_AGENT);
  history.save();
  expect(new History(session).of("a")).toEqual(history.of("a"));
  storage.set("muster-events-seen", "{broken");
  expect(new History(session).of("a")).toEqual([]);
});

test("progress of a target makes its rollout's targets stale, not the agents", () => {
  const stale = (type: string, data?: Record<string, unknown>) => effectsOf(event(type, "a", data)).stale;
  expect(stale("agent.upgrade_phase_changed", { rollout_id: "r1" })).toEqual([keys.targets("r1"), keys.why]);
  expect(stale("rollout.progress")).not.toContainEqual(keys.agents);
  for (const type of ["rollout.started", "rollout.completed", "rollout.cancelled", "rollout.rollback_completed"]) expect(stale(type), type).toContainEqual(keys.agents);
  for (const type of EVENT_TYPES) expect(stale(type, { rollout_id: "r1" }).flat(), type).not.toContain("rollout-preview");
});

test("an event without rollouts does not remove the rollout of an agent", () => {
  const held = agent({ rollout: { id: "r1", name: "Spring" }, desired_version: "1.1.0", last_healthy_version: "1.0.0" });
  const bare = agent({ status: "updating" });
  expect(freshOf(held, bare)).toMatchObject({ status: "updating", rollout: { id: "r1" }, desired_version: "1.1.0", last_healthy_version: "1.0.0" });
  expect(freshOf(held, agent({ desired_version: "1.0.0" })).rollout).toBeUndefined();
  expect(freshOf(undefined, bare)).toBe(bare);
  expect(patchList(list(held), map(bare), false).items[0]!.rollout).toEqual({ id: "r1", name: "Spring" });
});

test("an event keeps what a page has read about the rollout of a component", () => {
  const held = agent({ components: [component({ rollout: { id: "r1", name: "Spring" }, desired_version: "2.5.0" }), component({ id: "db", name: "db" })], desired_version: "1.0.0" });
  const fresh = freshOf(held, agent({ components: [component({ status: "STARTING", desired_version: "2.4.0" }), component({ id: "db", name: "db", desired_version: "9.0.0" })] }));
  expect(fresh.components[0]).toMatchObject({ status: "STARTING", rollout: { id: "r1" }, desired_version: "2.5.0" });
  expect(fresh.components[1]).toMatchObject({ desired_version: "9.0.0" });
  expect(fresh.components[1]!.rollout).toBeUndefined();
});
