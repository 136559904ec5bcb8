import { expect, test } from "vitest";
import type { ActionStatus } from "~/api/types";
import { actionTitle, progressOf, whyNotCancel } from "./action";

const now = Date.parse("2026-01-02T12:00:00Z");

function action(change: Partial<ActionStatus>): ActionStatus {
  return {
    actionId: "a1", type: "UPGRADE", status: "IN_PROGRESS", version: "1.1.0", creationTime: "2026-01-02T11:00:00Z",
    nbAgentsActioned: 9, nbAgentsActionCreated: 9, nbAgentsAck: 0, nbAgentsFailed: 0, hasRolloutPeriod: false, latestErrors: [], ...change,
  };
}

test.each([
  [{ nbAgentsAck: 5 }, "Upgrading 5 of 9 agents to 1.1.0"],
  [{ startTime: "2026-01-02T13:00:00Z" }, "Upgrade of 9 agents to 1.1.0 is scheduled"],
  [{ startTime: "2026-01-02T11:00:00Z" }, "Upgrading 0 of 9 agents to 1.1.0"],
  [{ status: "COMPLETE", nbAgentsAck: 9 }, "Upgraded 9 agents to 1.1.0"],
  [{ status: "COMPLETE", nbAgentsAck: 7, nbAgentsFailed: 2 }, "Upgraded 7 of 9 agents to 1.1.0, 2 failed"],
  [{ status: "FAILED", nbAgentsFailed: 9 }, "Upgrade of 9 agents to 1.1.0 failed"],
  [{ status: "CANCELLED", nbAgentsAck: 4 }, "Upgrade of 9 agents to 1.1.0 was cancelled, 4 done before"],
  [{ status: "EXPIRED", nbAgentsAck: 6 }, "Upgrade of 9 agents to 1.1.0 expired, 3 never answered"],
  [{ status: "ROLLOUT_PASSED", nbAgentsAck: 6 }, "Upgrading 6 of 9 agents to 1.1.0, past its rollout period"],
  [{ status: "COMPLETE", nbAgentsActioned: 1, nbAgentsActionCreated: 1, nbAgentsAck: 1 }, "Upgraded 1 agent to 1.1.0"],
  [{ rollback: true, version: "1.0.0", nbAgentsAck: 5 }, "Rolling back 5 of 9 agents to 1.0.0"],
  [{ rollback: true, version: "1.0.0", status: "FAILED", nbAgentsFailed: 9 }, "Rollback of 9 agents to 1.0.0 failed"],
  [{ type: "UNENROLL", version: undefined, status: "COMPLETE", nbAgentsAck: 9 }, "Unenrolled 9 agents"],
] as [Partial<ActionStatus>, string][])("%o reads %s", (change, want) => {
  expect(actionTitle(action(change), now)).toBe(want);
});

test("done, failed and waiting always add up to the agents selected", () => {
  for (let ack = 0; ack <= 12; ack++) {
    for (let failed = 0; failed <= 12; failed++) {
      const p = progressOf(action({ nbAgentsAck: ack, nbAgentsFailed: failed }));
      expect(p.done + p.failed + p.waiting).toBe(p.total);
      expect(Math.min(p.done, p.failed, p.waiting)).toBeGreaterThanOrEqual(0);
    }
  }
});

test("an upgrade can be cancelled only while an agent has not answered", () => {
  expect(whyNotCancel(action({ nbAgentsAck: 5 }))).toBeNull();
  expect(whyNotCancel(action({ nbAgentsAck: 9 }))).toMatch(/answered already/);
  expect(whyNotCancel(action({ status: "COMPLETE" }))).toMatch(/ended/);
  expect(whyNotCancel(action({ type: "UNENROLL" }))).toMatch(/Only upgrades/);
});
