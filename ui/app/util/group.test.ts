import { expect, test } from "vitest";
import { group, stop } from "~/testing/group";
import type { GroupState } from "~/api/types";
import { doneOf, GROUP_COMMANDS, groupCommandText, groupNeedsWhy, groupStateLabel, primaryOf, skippable, whyNotGroup, whyNotStartGroup, type GroupCommand } from "./group";

const allowed = (g: ReturnType<typeof group>): GroupCommand[] => GROUP_COMMANDS.filter((c) => whyNotGroup(c, g) === null);
const names = (g: ReturnType<typeof group>): string[] => skippable(g).map((m) => m.name);

test("a state allows its commands, and each other one has a reason", () => {
  const want: Record<GroupState, GroupCommand[]> = {
    draft: ["start", "delete"],
    running: ["pause", "pause_now", "skip", "rollback", "cancel"],
    paused: ["resume", "skip", "rollback", "cancel"],
    cancelling: ["rollback"],
    rolling_back: [],
    completed: ["rollback"],
    partial: ["rollback"],
    failed: ["rollback"],
    cancelled: ["rollback"],
    rolled_back: [],
  };
  for (const state of Object.keys(groupStateLabel) as GroupState[]) {
    expect(allowed(group({ state })), state).toEqual(want[state]);
    for (const c of GROUP_COMMANDS) expect(whyNotGroup(c, group({ state })), `${c} of ${state}`).not.toBe("");
  }
});

test("a failed rollout cannot be resumed, one that has stopped can", () => {
  const g = group(stop("failure", "web"));
  expect(whyNotGroup("resume", g)).toBeNull();
  const ended = { ...g, members: [g.members[0]!, { ...g.members[1]!, state: "failed" as const }] };
  expect(whyNotGroup("resume", ended)).toContain("leave the member out");
  expect(names(ended)).toEqual(["web"]);
});

test("a group that is rolled back only lets the member that stopped it out", () => {
  const rolling_back = { by: "muster", at: "2026-01-02T11:00:00Z" };
  const g = group({ ...stop("refused", "db"), rolling_back });
  expect(names(g)).toEqual(["db"]);
  expect(allowed(g)).toEqual(["resume", "skip"]);
  expect(names(group({ state: "rolling_back", rolling_back }))).toEqual([]);
  expect(groupCommandText("skip", g).text).toContain("keeps its version");
});

test("overriding a gate needs a reason", () => {
  for (const kind of ["failure", "drift"] as const) {
    const g = group(stop(kind, "web"));
    expect(groupNeedsWhy("resume", g), kind).toBe(true);
    expect(groupNeedsWhy("skip", g, "web"), kind).toBe(true);
    expect(groupNeedsWhy("skip", g, "db"), kind).toBe(false);
    expect(groupNeedsWhy("rollback", g), kind).toBe(false);
  }
  expect(groupNeedsWhy("resume", group(stop("operator")))).toBe(false);
});

test("one command stands out, but not after a failure", () => {
  expect(primaryOf(group({ state: "draft" }))).toBe("start");
  expect(primaryOf(group(stop("operator")))).toBe("resume");
  expect(primaryOf(group(stop("drift", "web")))).toBe("resume");
  expect(primaryOf(group(stop("failure", "web")))).toBeUndefined();
  expect(primaryOf(group())).toBeUndefined();
});

test("a preview can be started if each member upgrades an agent", () => {
  const member = (name: string, targets: number) => ({ name, targets, version: "1", hash: "h", skipped: 0, batches: 1, offline: 0, at_least: "1m", estimate: "1m", warnings: [] });
  const preview = (...members: ReturnType<typeof member>[]) => ({ group_id: "g1", hash: "h", at: "2026-01-02T10:00:00Z", at_least: "1m", estimate: "1m", members });
  expect(whyNotStartGroup(undefined)).not.toBeNull();
  expect(whyNotStartGroup(preview(member("db", 1), member("web", 0)))).toContain("web");
  expect(whyNotStartGroup(preview(member("db", 1)))).toBeNull();
  expect(doneOf(group())).toBe(1);
});
