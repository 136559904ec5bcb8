import { expect, test } from "vitest";
import type { ActionStatus } from "~/api/types";
import { actionTitle, isScheduled, lackQuery, latestQuery, orderedBy, outcomeLook, partsOf } from "./action";

const now = Date.parse("2026-01-02T10:00:00Z");
const action = (change: Partial<ActionStatus> = {}): ActionStatus => ({
  actionId: "x1",
  type: "UPGRADE",
  status: "IN_PROGRESS",
  outcome: "IN_PROGRESS",
  version: "2.4.1",
  creationTime: "2026-01-02T09:00:00Z",
  nbAgentsActioned: 10,
  nbAgentsActionCreated: 10,
  nbAgentsAck: 10,
  nbAgentsFailed: 0,
  nbAgentsDone: 0,
  hasRolloutPeriod: false,
  latestErrors: [],
  ...change,
});

test("titles say what was ordered", () => {
  expect(actionTitle(action())).toBe("Upgrade to 2.4.1");
  expect(actionTitle(action({ component: "web" }))).toBe("Upgrade of web to 2.4.1");
  expect(actionTitle(action({ rollback: true }))).toBe("Rollback to 2.4.1");
  expect(actionTitle(action({ type: "STAGE" }))).toBe("Staging of 2.4.1");
  expect(actionTitle(action({ type: "POLICY_CHANGE", policyId: "web", revision: 3 }), () => "Web servers")).toBe("Policy Web servers changed to revision 3");
  expect(actionTitle(action({ type: "SOMETHING_NEW", version: undefined }))).toBe("SOMETHING_NEW");
});

test("acknowledged is not done: only committed is green", () => {
  const parts = partsOf(action({ progress: { committed: 3, watching: 5, rolled_back: 1, waiting_for_host: 1 } }));
  expect(parts.map((p) => [p.state, p.tone, p.count])).toEqual([
    ["waiting_for_host", "away", 1],
    ["watching", "watch", 5],
    ["committed", "ok", 3],
    ["rolled_back", "bad", 1],
  ]);
});

test("the parts add up to the hosts", () => {
  for (const a of [action({ progress: { committed: 3 } }), action({ type: "UNENROLL", nbAgentsDone: 4, nbAgentsFailed: 2 })]) {
    expect(partsOf(a).reduce((n, p) => n + p.count, 0)).toBe(10);
  }
});

test("the outcome is what moves", () => {
  expect(outcomeLook(action({ progress: { watching: 10 } }), now)).toEqual({ word: "Watching", tone: "watch" });
  expect(outcomeLook(action({ progress: { waiting_for_host: 2, committed: 8 } }), now).word).toBe("Waiting for hosts");
  expect(outcomeLook(action({ startTime: "2026-01-02T11:00:00Z" }), now).word).toBe("Scheduled");
  expect(outcomeLook(action({ outcome: "FAILED" }), now)).toEqual({ word: "Failed", tone: "bad" });
  expect(isScheduled(action({ startTime: "2026-01-02T11:00:00Z", outcome: "CANCELLED" }), now)).toBe(false);
});

test("hosts that the action has left are stopped, and those without an answer wait while it lasts", () => {
  const states = (a: ActionStatus) => partsOf(a).map((p) => [p.state, p.word, p.count]);
  expect(states(action({ progress: { committed: 8 }, outcome: "COMPLETE" }))).toEqual([
    ["committed", "Committed", 8],
    ["stopped", "Stopped", 2],
  ]);
  expect(states(action({ type: "UNENROLL", nbAgentsDone: 9 }))).toEqual([
    ["done", "Done", 9],
    ["sent", "Waiting", 1],
  ]);
  expect(states(action({ type: "UNENROLL", nbAgentsDone: 9, outcome: "EXPIRED" }))).toEqual([
    ["done", "Done", 9],
    ["stopped", "Without an answer", 1],
  ]);
  expect(latestQuery(action(), "watching")).toBe('upgrade_action_id: "x1" and progress: watching');
  expect(latestQuery(action({ component: "web" }))).toBe('component_actions: "x1"');
  expect(latestQuery(action({ type: "UNENROLL" }))).toBeUndefined();
  expect(lackQuery("web", 3)).toBe('policy_id: "web" and not policy_revision_idx >= 3');
});

test("a rollout's order is by the rollout", () => {
  expect(orderedBy({ created_by: "rollout Spring", rollout: { id: "r", name: "Spring" } })).toBe("");
  expect(orderedBy({ created_by: "ann" })).toBe("ann");
});
