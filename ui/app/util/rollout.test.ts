import { describe, expect, test } from "vitest";
import type { Rollout, Stop } from "~/api/types";
import { rollout, target } from "~/testing/rollout";
import { commandText } from "./commandText";
import { COMMANDS, inFlightWords, isGate, needsWhy, putBackOf, whyNot, whyNotRetry, whyNotSkip, type Command } from "./rollout";

const now = Date.parse("2026-01-02T12:00:00Z");
const said = { by: "ann", at: "2026-01-02T11:00:00Z" };
const stop = (kind: Stop["kind"]): Stop => ({ kind, text: "3 of 40 failed", by: "muster", at: said.at, withdrawn: 2, batch: 1 });
const may = (r: Rollout) => COMMANDS.filter((c) => whyNot(c, r, now) === null);

describe("what is allowed in which state", () => {
  const some = { succeeded: 2, failed: 1, pending: 2 };
  test.each<[string, Rollout, Command[]]>([
    ["a draft is started or deleted", rollout({ state: "draft", counts: {} }), ["start", "delete"]],
    ["a running one is paused, forced, cancelled", rollout(), ["pause", "pause_now", "force", "cancel"]],
    ["with failures it is also retried and rolled back", rollout({ counts: some }), ["pause", "pause_now", "force", "cancel", "retry", "rollback_failed", "rollback_all"]],
    ["a requested pause can be withdrawn, or made at once", rollout({ pause_asked: said }), ["pause_now", "resume", "force", "cancel"]],
    ["a paused one is resumed", rollout({ state: "paused", stop: stop("threshold"), counts: some }), ["resume", "force", "cancel", "retry", "rollback_failed", "rollback_all"]],
    ["one that is being cancelled is only rolled back", rollout({ state: "cancelling", counts: { succeeded: 1, upgrading: 1 } }), ["rollback_all"]],
    ["a completed one is rolled back", rollout({ state: "completed", counts: { succeeded: 5 } }), ["rollback_all"]],
    ["a failed one too", rollout({ state: "failed", counts: some }), ["rollback_failed", "rollback_all"]],
    ["a rollback is not rolled back", rollout({ state: "failed", rollback_of: "r0", counts: some }), []],
    ["what is rolled back in part can be rolled back as a whole", rollout({ state: "failed", rolled_back_by: "r1-rollback-failed", counts: some }), ["rollback_all"]],
  ])("%s", (_, r, want) => {
    expect(may(r)).toEqual(want);
  });

  test("targets rolled back by their watchers need no rollback", () => {
    const r = rollout({ counts: { succeeded: 2, rolled_back: 3 } });
    expect(whyNot("rollback_failed", r, now)).toBe("Watchers have rolled back all failed targets already.");
    expect(putBackOf(r)).toBe(2);
  });

  test("every reason is a sentence", () => {
    for (const state of ["draft", "running", "paused", "cancelling", "completed", "failed", "cancelled", "rolled_back"] as const) {
      for (const c of COMMANDS) {
        const why = whyNot(c, rollout({ state }), now);
        if (why !== null) expect(why, `${c} of ${state}`).toMatch(/^[A-Z].{8,}\.$/);
      }
    }
  });
});

test("an approval is for canaries that are done, once", () => {
  const plan = { strategy: { kind: "canary" as const, canary: { approval: true } } };
  const batch = { index: 0, kind: "canary" as const, ring: 0, counts: rollout().counts };
  const why = (change: Partial<Rollout>) => whyNot("approve", rollout({ plan, batches: [batch], ...change } as never), now);
  expect(why({})).toBe("Its canaries are not done yet.");
  expect(why({ batches: [{ ...batch, ended_at: said.at }] })).toBeNull();
  expect(why({ approved: said })).toBe("ann has approved it already.");
  expect(whyNot("approve", rollout(), now)).toBe("Its plan needs no approval.");
  const breaking = rollout({ plan: { strategy: { kind: "canary" }, migration: { type: "breaking" } }, batches: [{ ...batch, ended_at: said.at }] });
  expect(whyNot("approve", breaking, now)).toBeNull();
});

test("a rollout cannot be resumed after its deadline", () => {
  const plan = { strategy: { kind: "all_at_once" as const, deadline: "2026-01-02T11:59:00Z" } };
  const r = rollout({ state: "paused", stop: stop("deadline"), plan });
  expect(whyNot("resume", r, now)).toMatch(/deadline of its plan has passed/);
  expect(whyNot("force", r, now)).toMatch(/deadline of its plan has passed/);
  expect(whyNot("resume", rollout({ state: "paused", stop: stop("operator"), plan }), now)).toBeNull();
});

test("the targets of a rollout in lockstep are neither paused nor retried, and after the phase switch there is no way back", () => {
  const plan = { component: "web", strategy: { kind: "lockstep" as const } };
  const phase = (p: NonNullable<Rollout["lockstep"]>["phase"], more = {}) => rollout({ plan, lockstep: { phase: p, since: said.at, ...more } });
  expect(may(phase("verify"))).toEqual(["pause", "pause_now", "cancel"]);
  expect(may(phase("stop"))).toEqual(["cancel"]);
  expect(may(phase("start", { committed_at: said.at }))).toEqual([]);
  expect(whyNot("rollback_all", rollout({ plan, state: "completed", counts: { succeeded: 2 } }), now)).toMatch(/mixed versions/);
  expect(whyNotSkip(target("pending"), phase("verify"))).toBeNull();
  expect(whyNotSkip(target("pending"), phase("drain"))).toMatch(/wait for each other/);
});

test("resuming after a gate and force need a reason", () => {
  for (const kind of ["operator", "success", "rollback", "threshold", "canary", "exposure", "deadline"] as const) {
    expect(needsWhy("resume", rollout({ state: "paused", stop: stop(kind) })), kind).toBe(isGate(kind));
  }
  expect(needsWhy("resume", rollout({ pause_asked: said }))).toBe(false);
  expect(needsWhy("force", rollout())).toBe(true);
  expect(needsWhy("cancel", rollout())).toBe(false);
});

test("a target is retried or skipped only in states where that has an effect", () => {
  const states = ["pending", "held", "offered", "upgrading", "verifying", "succeeded", "failed", "rolled_back", "withdrawn", "skipped", "expired", "cancelled"] as const;
  expect(states.filter((s) => !whyNotRetry(target(s), rollout()))).toEqual(["failed", "rolled_back", "withdrawn", "expired"]);
  expect(states.filter((s) => !whyNotSkip(target(s), rollout()))).toEqual(["pending", "held", "failed", "rolled_back", "withdrawn", "expired"]);
  expect(whyNotRetry(target("failed"), rollout({ state: "completed" }))).toBe("It is completed.");
});

test.each([
  [{ offered: 4, upgrading: 1, verifying: 1 }, "4 offers that have not started are withdrawn; 2 upgrades under way still end."],
  [{ offered: 1, upgrading: 1 }, "1 offer that has not started is withdrawn; 1 upgrade under way still ends."],
  [{ pending: 3 }, "No offer is open; no upgrade is under way."],
])("in flight %o reads %s", (counts, want) => {
  expect(inFlightWords(rollout({ counts }))).toBe(want);
});

test("the text of every command has its numbers", () => {
  const r = rollout({ counts: { succeeded: 3, failed: 1, rolled_back: 1, upgrading: 2, offered: 4, pending: 7, withdrawn: 1 } });
  for (const c of COMMANDS) expect(commandText(c, r).confirm, c).toMatch(/^[A-Z]/);
  expect(putBackOf(r)).toBe(6);
  expect(commandText("rollback_all", r).text).toMatch(/^6 targets that failed, were upgraded or are under way go back .* 1 target was rolled back by its watcher already\.$/);
  expect(commandText("retry", r).confirm).toBe("Retry 2 targets");
  expect(commandText("pause_now", r).text).toContain("4 offers");
  expect(commandText("resume", rollout({ state: "paused", stop: stop("threshold"), counts: { failed: 3 } })).text).toContain("The 3 failures so far no longer count");
});
