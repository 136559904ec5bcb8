import { expect, test } from "vitest";
import type { ActionStatus } from "~/api/types";
import { actionTitle, progressOf, whyNotCancel } from "./action";

const now = Date.parse("2026-01-02T12:00:00Z");

function action(change: Partial<ActionStatus>): ActionStatus {
  return {
    actionId: "a1", type: "UPGRADE", status: "IN_PROGRESS", outcome: "IN_PROGRESS", version: "1.1.0", creationTime: "2026-01-02T11:00:00Z",
    nbAgentsActioned: 9, nbAgentsActionCreated: 9, nbAgentsAck: 0, nbAgentsDone: 0, nbAgentsFailed: 0, hasRolloutPeriod: false, latestErrors: [], ...change,
  };
}

test.each([
  [{ nbAgentsDone: 5 }, "Upgrading 5 of 9 agents to 1.1.0"],
  [{ startTime: "2026-01-02T13:00:00Z" }, "Upgrade of 9 agents to 1.1.0 is scheduled"],
  [{ startTime: "2026-01-02T11:00:00Z" }, "Upgrading 0 of 9 agents to 1.1.0"],
  [{ outcome: "COMPLETE", nbAgentsDone: 9 }, "Upgraded 9 agents to 1.1.0"],
  [{ outcome: "COMPLETE", nbAgentsDone: 7, nbAgentsFailed: 2 }, "Upgraded 7 of 9 agents to 1.1.0, 2 failed"],
  [{ outcome: "FAILED", nbAgentsFailed: 9 }, "Upgrade of 9 agents to 1.1.0 failed"],
  [{ outcome: "CANCELLED", nbAgentsDone: 4 }, "Upgrade of 9 agents to 1.1.0 was cancelled, 4 done before"],
  [{ outcome: "EXPIRED", nbAgentsDone: 6 }, "Upgrade of 9 agents to 1.1.0 expired, 3 never answered"],
  [{ outcome: "ROLLOUT_PASSED", nbAgentsDone: 6 }, "Upgrading 6 of 9 agents to 1.1.0, past its rollout period"],
  [{ outcome: "COMPLETE", nbAgentsActioned: 1, nbAgentsActionCreated: 1, nbAgentsDone: 1 }, "Upgraded 1 agent to 1.1.0"],
  [{ type: "PROCEED", version: undefined, nbAgentsDone: 5 }, "Going on in lockstep on 5 of 9 agents"],
  [{ type: "STAGE", nbAgentsDone: 5 }, "Staging on 5 of 9 agents: 1.1.0"],
  [{ type: "STAGE", component: "web", outcome: "COMPLETE", nbAgentsDone: 9 }, "Staged on 9 agents: web 1.1.0"],
  [{ rollback: true, version: "1.0.0", nbAgentsDone: 5 }, "Rolling back 5 of 9 agents to 1.0.0"],
  [{ rollback: true, version: "1.0.0", outcome: "FAILED", nbAgentsFailed: 9 }, "Rollback of 9 agents to 1.0.0 failed"],
  [{ component: "web", version: "2.5.0", nbAgentsDone: 5 }, "Upgrading web on 5 of 9 agents to 2.5.0"],
  [{ component: "web", version: "2.5.0", outcome: "FAILED", nbAgentsFailed: 9 }, "Upgrade of web on 9 agents to 2.5.0 failed"],
  [{ type: "UNENROLL", version: undefined, outcome: "COMPLETE", nbAgentsDone: 9 }, "Unenrolled 9 agents"],
  [{ type: "POLICY_CHANGE", version: undefined, policyId: "web", revision: 4, nbAgentsDone: 3 }, "Policy web revision 4: 3 of 9 agents"],
] as [Partial<ActionStatus>, string][])("%o reads %s", (change, want) => {
  expect(actionTitle(action(change), now)).toBe(want);
});

test("done, failed and waiting always add up to the agents selected", () => {
  for (let ack = 0; ack <= 12; ack++) {
    for (let failed = 0; failed <= 12; failed++) {
      const p = progressOf(action({ nbAgentsDone: ack, nbAgentsFailed: failed }));
      expect(p.done + p.failed + p.waiting).toBe(p.total);
      expect(Math.min(p.done, p.failed, p.waiting)).toBeGreaterThanOrEqual(0);
    }
  }
});

test("an upgrade can be cancelled only while an agent has not answered", () => {
  expect(whyNotCancel(action({ nbAgentsAck: 5 }))).toBeNull();
  expect(whyNotCancel(action({ nbAgentsAck: 9 }))).toMatch(/answered already/);
  expect(whyNotCancel(action({ outcome: "COMPLETE" }))).toMatch(/ended/);
  expect(whyNotCancel(action({ type: "UNENROLL" }))).toMatch(/Only upgrades/);
});
