import { expect, test } from "vitest";
import type { Preview, Rollout } from "~/api/types";
import { counts, rollout, target } from "~/testing/rollout";
import { batchStep } from "~/util/board/batch";
import { countsText } from "~/util/grid/gridClass";
import { exposureText, formOf, freezeState, ruleOf, whyNotFreeze } from "~/util/guardrail/guardRails";
import { driftText, groupSkipped, startText, whyNotStart } from "./preview";
import { BAR_GROUPS, exposedText, groupCounts, percentOver, provedText, TARGET_STATES } from "./rolloutCounts";
import {
  codeText,
  countdown,
  countdownText,
  durationText,
  goalOf,
  lockstepText,
  showsRecovery,
  stopReason,
  strategyText,
  waitsOf,
  whyCode,
} from "./rolloutText";

const at = "2026-01-02T12:00:00Z";
const now = Date.parse(at);

test("the parts of a bar add up to all targets, whatever state each is in", () => {
  const c = counts(Object.fromEntries(TARGET_STATES.map((s, i) => [s, i + 1])));
  expect(BAR_GROUPS.reduce((sum, g) => sum + groupCounts(c)[g], 0)).toBe(c.total);
  expect(countsText(groupCounts(counts({ succeeded: 2, rolled_back: 1 })))).toBe("1 rolled back, 2 committed");
  expect(countsText(groupCounts(counts()))).toBe("no hosts");
  // A host that was only sent its order is not part of what is done.
  expect(groupCounts(counts({ succeeded: 5, offered: 3 }))).toMatchObject({ committed: 5, upgrading: 3 });
});

test.each([
  [{ pending: 1, succeeded: 299 }, 99],
  [{ succeeded: 1, failed: 1 }, 100],
  [{ held: 4 }, 0],
  [{}, 0],
])("%o is %i percent done", (c, want) => {
  expect(percentOver(counts(c))).toBe(want);
});

test("the exposure limit applies until the version has enough healthy hours", () => {
  const e = { version: "1.1.0", fleet: 10_000, exposed: 10, limit: 1_000, healthy_hours: 3, needed_hours: 24 };
  expect(exposedText(e)).toBe("10 of 10,000 hosts, at most 1,000 allowed");
  expect([3, 23.99, 24].map((healthy_hours) => provedText({ ...e, healthy_hours }))).toEqual([
    "21.0 hours until the limit no longer applies",
    "1 minute until the limit no longer applies",
    "The limit no longer applies",
  ]);
});

test.each([
  ["1h30m0s", "1 h 30 min"],
  ["10m0s", "10 minutes"],
  ["45s", "45 seconds"],
  ["168h0m0s", "7 days"],
  ["170h0m0s", "7 days 2 h"],
  ["2h0m0s", "2 hours"],
  ["soon", "soon"],
])("%s reads %s", (go, want) => {
  expect(durationText(go)).toBe(want);
});

test("a target that is next waits for what the rollout waits for", () => {
  const waiting = (...codes: string[]) => rollout({ waiting: codes.map((code) => ({ code, text: code, since: "2026-01-02T11:00:00Z" })) });
  const next = { ...target("pending"), code: "next" };
  expect(whyCode(next, waiting("freeze", "later_batch"))).toBe("freeze");
  expect(whyCode(next, waiting("later_batch"))).toBe("next");
  expect(whyCode(next, rollout())).toBe("next");
  expect(whyCode({ ...target("pending"), code: "later_batch" }, waiting("freeze"))).toBe("later_batch");
  expect(whyCode({ ...target("failed"), code: "crash_loop" }, waiting("threshold"))).toBe("crash_loop");
});

test("a countdown is a clock within the hour", () => {
  expect(countdown("2026-01-02T12:09:05Z", now)).toBe("9:05 min");
  expect(countdown("2026-01-02T11:00:00Z", now)).toBe("0:00 min");
  expect(countdown("2026-01-04T12:00:00Z", now)).toMatch(/2 days/);
});

test("a wait has an end", () => {
  expect(countdownText("2026-01-02T12:09:05Z", now)).toBe("9:05 min left");
  expect(countdownText("2026-01-04T12:00:00Z", now)).toMatch(/^ends in 2 days/);
});

test("a plan in one line", () => {
  expect(strategyText({ name: "a", strategy: { kind: "rolling" } })).toBe("Rolling, batches of 10 %");
  expect(strategyText({ name: "a", strategy: { kind: "canary", batch_size: 1000, canary: { size: 5, pick: "stratified" } } })).toBe(
    "Canary (5 hosts, stratified), then batches of 1,000",
  );
  expect(strategyText({ name: "a", strategy: { kind: "lockstep", away: "exclude" } })).toBe("In lockstep, without offline hosts");
  expect(strategyText({ name: "a", strategy: { kind: "rings", rings: { by: "tier" } } })).toBe("Rings by tier, batches of 10 %");
  expect(goalOf(rollout())).toBe("to 1.1.0");
  expect(goalOf(rollout({ plan: { name: "All to 1.1.0" } }))).toBe("");
  expect(goalOf(rollout({ rollback_of: "r0" }))).toMatch(/last healthy/);
  expect(goalOf(rollout({ plan: { component: "web" } }))).toBe("component web to 1.1.0");
  expect(goalOf(rollout({ plan: { component: "web", name: "All to 1.1.0" } }))).toBe("component web");
  expect(goalOf(rollout({ plan: { component: "web", name: "web to 1.1.0" } }))).toBe("component web");
  expect(goalOf(rollout({ plan: { component: "web" }, rollback_of: "r0" }))).toBe("Back to the last healthy versions of component web");
});

test("why a rollout is paused, beside its badge", () => {
  expect([stopReason("canary"), stopReason("success"), stopReason("operator")]).toEqual([
    "A canary failed",
    "Paused after a successful batch, as planned",
    "Paused",
  ]);
});

test("unknown codes of a newer server are shown as they are", () => {
  expect(codeText("solar_flare")).toBe("solar flare");
  expect(codeText(undefined)).toBe("");
});

test("a paused rollout does not wait for its own pause", () => {
  const waiting = [
    { code: "threshold", text: "it is paused", since: at },
    { code: "freeze", text: "y", since: at },
  ];
  expect(waitsOf(rollout({ state: "paused", waiting })).map((w) => w.code)).toEqual(["freeze"]);
  expect(waitsOf(rollout({ waiting }))).toHaveLength(2);
});

test("the recovery plan is there when state is at risk or something went wrong", () => {
  expect(showsRecovery(rollout({ plan: { migration: { type: "breaking", recovery_plan: "x" } } }))).toBe(true);
  expect(showsRecovery(rollout({ plan: { migration: { type: "compatible", recovery_plan: "x" } } }))).toBe(false);
  expect(showsRecovery(rollout({ plan: { migration: { type: "compatible", recovery_plan: "x" } }, counts: { failed: 1 } }))).toBe(true);
});

test("the state of a batch is shown", () => {
  const b = { index: 0, kind: "regular" as const, ring: 0, counts: counts({ pending: 3 }) };
  const word = (change: object, r: Rollout = rollout()) => batchStep({ ...b, ...change }, r).word;
  expect(word({})).toBe("Later");
  expect(word({}, rollout({ state: "cancelled" }))).toBe("Not started");
  expect(word({ started_at: at })).toBe("Under way");
  expect(word({ started_at: at }, rollout({ state: "paused" }))).toBe("Stopped");
  expect(word({ started_at: at, ended_at: at }, rollout({ waiting: [{ code: "soak", text: "x", since: at }] }))).toBe("Soaking");
  expect(word({ started_at: at, ended_at: at, cleared_at: at })).toBe("Done");
});

test("skipped agents are grouped by reason, and found by any of their words", () => {
  const skip = (hostname: string, code: string, text = "x") => ({ agent_id: `id-${hostname}`, hostname, version: "1.0.0", code, text });
  const all = [skip("web-1", "refused", "runs in a container"), skip("web-2", "runs_version"), skip("web-3", "runs_version")];
  expect(groupSkipped(all).map((g) => [g.title, g.agents.length])).toEqual([
    ["Runs the version already", 2],
    ["Cannot be upgraded", 1],
  ]);
  expect(groupSkipped(all, "container web").map((g) => g.agents.map((a) => a.hostname))).toEqual([["web-1"]]);
  expect(groupSkipped(all, "nothing")).toEqual([]);
});

test("the start button has the number of agents, and a reason without any", () => {
  const p = (n: number) => ({ targets: Array(n).fill({}) }) as unknown as Preview;
  expect(startText(p(1))).toBe("Upgrade 1 host");
  expect(startText(p(1234))).toBe("Upgrade 1,234 hosts");
  expect([whyNotStart(p(1), null), whyNotStart(p(0), null), whyNotStart(undefined, null), whyNotStart(p(1), new Error())]).toEqual([
    null,
    "No host would be upgraded.",
    "Loading the preview…",
    "The preview failed.",
  ]);
  expect(driftText({ added: [], removed: [{ agent_id: "a", hostname: "a", text: "x" }], changed: [] })).toBe("1 host removed");
});

test("the exposure form keeps its values, and shows errors at their fields", () => {
  const rule = { id: "fleet", enabled: true, percent: 10, healthy_hours: 24, per: [{ label: "site", percent: 20 }], updated_at: at, updated_by: "ann" };
  expect(ruleOf(formOf(rule)).rule).toEqual({ enabled: true, percent: 10, healthy_hours: 24, per: [{ label: "site", percent: 20 }] });
  const bad = (change: object) => Object.keys(ruleOf({ ...formOf(rule), ...change }).errors);
  expect([
    bad({ percent: "0" }),
    bad({ percent: "abc" }),
    bad({ hours: "-1" }),
    bad({ per: "site" }),
    bad({ per: "a 1\na 2" }),
    bad({ per: "a 1\nb 1\nc 1\nd 1\ne 1" }),
  ]).toEqual([["percent"], ["percent"], ["hours"], ["per"], ["per"], ["per"]]);
  expect(exposureText(rule)).toBe("At most 10 % of the fleet and 20 % of each site on a version with fewer than 24 healthy agent-hours.");
});

test("a freeze has a name and ends after it begins, in the future", () => {
  const form = { name: "Quarter end", from: "2026-01-03T00:00", to: "2026-01-05T00:00" };
  expect(whyNotFreeze(form, now)).toBeNull();
  expect(whyNotFreeze({ ...form, name: " " }, now)).toMatch(/Enter a name/);
  expect(whyNotFreeze({ ...form, to: "" }, now)).toMatch(/a start and an end/);
  expect(whyNotFreeze({ ...form, to: form.from }, now)).toMatch(/before it starts/);
  expect(whyNotFreeze({ ...form, from: "2025-01-01T00:00", to: "2025-02-01T00:00" }, now)).toMatch(/ended already/);
  const f = { id: "f", name: "x", from: "2026-01-02T11:00:00Z", to: "2026-01-02T13:00:00Z", created_at: at, created_by: "ann" };
  expect([freezeState(f, now), freezeState(f, now - 7.2e6), freezeState(f, now + 7.2e6)]).toEqual(["now", "coming", "over"]);
});

test("a rollout in lockstep shows its phase, and whether there is a way back", () => {
  const at = "2026-01-02T12:00:00Z";
  expect(lockstepText(rollout())).toBe("");
  expect(lockstepText(rollout({ lockstep: { phase: "verify_again", since: at, missing: ["web-9"] } }))).toBe(
    "Phase verify again; left out because offline: web-9",
  );
  expect(lockstepText(rollout({ lockstep: { phase: "start", since: at, committed_at: at, failed: ["web-1"] } }))).toBe(
    "Phase start; it goes through to its end; look at web-1",
  );
  expect(lockstepText(rollout({ lockstep: { phase: "start", since: at, failed: ["web-1", "web-2", "web-3", "web-4", "web-5"] } }))).toBe(
    "Phase start; look at web-1, web-2, web-3 and 2 more",
  );
  expect(lockstepText(rollout({ state: "paused", lockstep: { phase: "verify", since: at, failed: ["web-1"] } }))).toBe(
    "Phase verify; a person mends what is not ready, then resumes or cancels it",
  );
  expect(lockstepText(rollout({ lockstep: { phase: "undo", since: at, undo: { at, in: "stop", why: "web-2 failed" } } }))).toBe(
    "Phase undo; everything is undone: web-2 failed",
  );
});
