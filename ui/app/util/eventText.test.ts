import { expect, test } from "vitest";
import { phaseTimes, type SeenEvent } from "~/api/history";
import { agent } from "~/testing/agent";
import { eventText, lastingEvents, mergeEvents } from "./eventText";

const at = (minute: number) => `2026-01-02T12:${String(minute).padStart(2, "0")}:00Z`;
const up = (change: Partial<SeenEvent>, minute = 0): SeenEvent => ({ seq: minute, at: at(minute), type: "agent.upgrade", ...change });

test.each([
  [up({ upgrade: "started", version: "1.0.0" }), "Upgrade requested"],
  [up({ state: "UPG_DOWNLOADING", target: "1.1.0" }), "Downloading"],
  [up({ state: "UPG_ROLLBACK", target: "1.2.0", reason: "it crashed" }), "Rolled back from 1.2.0: it crashed"],
  [up({ state: "UPG_FAILED", target: "1.2.0" }), "Upgrade to 1.2.0 failed"],
  [up({ version: "1.1.0" }), "Upgrade ended, runs 1.1.0"],
  [{ ...up({}), type: "agent.status", status: "offline" }, "Status became offline"],
  [{ ...up({}), type: "action.result", reason: "no space left" }, "Acknowledged the action with an error: no space left"],
  [{ ...up({}), type: "agent.watch", stage: "watching", target: "1.1.0" }, "The watcher is watching 1.1.0"],
  [{ ...up({}), type: "agent.watch", stage: "rolled_back", target: "1.1.0", reason: "it crashed" }, "The watcher rolled back from 1.1.0: it crashed"],
  [{ ...up({}), type: "agent.watch" }, "The watcher reported"],
  [{ ...up({}), type: "agent.upgrade_started" }, "A rollout offered it an upgrade"],
  [{ ...up({}), type: "agent.upgrade_phase_changed", stage: "verifying" }, "State in its rollout: being watched"],
  [{ ...up({}), type: "agent.upgrade_completed", stage: "failed", reason: "no space left" }, "Ended in its rollout: failed: no space left"],
  [{ ...up({}), type: "agent.staged", version: "1.2.0, web 2.4.0" }, "Has staged 1.2.0, web 2.4.0"],
  [{ ...up({}), type: "agent.staged", version: "" }, "Has no staged version any more"],
  [{ ...up({}), type: "agent.component", component: "web", upgrade: "started", target: "2.5.0", version: "2.4.0" }, "web: upgrade to 2.5.0 requested"],
  [{ ...up({}), type: "agent.component", component: "web", action: "a1" }, "web: upgrade requested"],
  [{ ...up({}), type: "agent.component", component: "web", upgrade: "started", state: "UPG_ROLLBACK", target: "2.5.0", reason: "no answer" }, "web: Rolling back from 2.5.0: no answer"],
  [{ ...up({}), type: "agent.component", component: "web", upgrade: "rolled_back", state: "UPG_FAILED", target: "2.5.0", reason: "no answer" }, "web: Rolled back from 2.5.0: no answer"],
  [{ ...up({}), type: "agent.component", component: "web", state: "UPG_FAILED", target: "2.5.0", reason: "no answer" }, "web: Upgrade to 2.5.0 failed: no answer"],
  [{ ...up({}), type: "agent.component", component: "web", version: "2.5.0", status: "HEALTHY" }, "web: 2.5.0, HEALTHY"],
  [{ ...up({}), type: "agent.painted" }, "agent.painted"],
] as [SeenEvent, string][])("%o reads %s", (event, want) => {
  expect(eventText(event)).toBe(want);
});

test("a request belongs to the upgrade whose phases follow, not to one before", () => {
  const seen = [
    up({ upgrade: "started", state: "UPG_EXTRACTING", action: "second" }, 9),
    up({ upgrade: "started" }, 8),
    up({ version: "1.1.0" }, 5),
    up({ upgrade: "started", state: "UPG_WATCHING", action: "first" }, 4),
    up({ upgrade: "started" }, 1),
  ];
  expect(phaseTimes(seen, "first")).toEqual(new Map([["UPG_REQUESTED", at(1)], ["UPG_WATCHING", at(4)]]));
  expect(phaseTimes(seen, "second")).toEqual(new Map([["UPG_REQUESTED", at(8)], ["UPG_EXTRACTING", at(9)]]));
});

test("the agent's record adds events from before this browser's, without duplicates", () => {
  const a = agent({ enrolled_at: at(0), upgraded_at: at(30) });
  const seen = [up({ version: "1.1.0" }, 30), up({ state: "UPG_DOWNLOADING" }, 20)];
  expect(mergeEvents(seen, lastingEvents(a)).map(eventText)).toEqual(["Upgrade ended, runs 1.1.0", "Downloading", "Enrolled"]);
  expect(mergeEvents([], lastingEvents(a)).map(eventText)).toEqual(["Upgrade ended, runs 1.0.0", "Enrolled"]);
});
