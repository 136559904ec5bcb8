import { expect, test } from "vitest";
import type { FleetDiff } from "~/api/types";
import { fleet, HASH } from "~/testing/fleet";
import { FLEET_COMMANDS, fleetCommandText, holding, managedBy, obstaclesOf, partsOf, startsNow, startsText, whyNotFleet } from "./fleet";

const NOW = Date.parse("2026-01-02T12:00:00Z");
const why = (...args: Parameters<typeof fleet>) => obstaclesOf(fleet(...args), NOW).map((o) => `${o.text} ${o.next}`);
const running = (waiting?: string) => ({ rollout: { id: "r1", version: "1.1.0", state: "running" as const, waiting }, lastCompletedRolloutHash: "" });
const notReady = { type: "Ready" as const, status: "False" as const };

test("what is rolled out, or rolls out without a wait, has no obstacle", () => {
  expect(why()).toEqual([]);
  expect(why(running(), {}, [notReady, { type: "Progressing", status: "True" }])).toEqual([]);
});

test("a rollout that waits for approval says so once, with both ways on", () => {
  const stalled = { type: "Stalled" as const, status: "True" as const, reason: "WaitsForApproval", message: "rollout r1 waits for approval" };
  expect(why(running("an operator must approve"), {}, [notReady, stalled])).toEqual([
    "Its rollout of the agents to 1.1.0 waits: an operator must approve. Approve the rollout, or force its promotion.",
  ]);
});

test("a suspension names who, when and why; a pause names its field", () => {
  const by = { by: "ann", at: "2026-01-02T11:00:00Z", why: "disk is full" };
  const suspended = { type: "Stalled" as const, status: "True" as const, reason: "Suspended" };
  expect(why({ suspended: by }, {}, [notReady, suspended])).toEqual([
    expect.stringMatching(/^ann took its agents over 1 hr\.? ago: “disk is full”\. Muster leaves them alone\. Resume it, or change its spec\.$/),
  ]);
  expect(why({}, { paused: true }, [notReady, { type: "Stalled", status: "True", reason: "Paused" }])).toEqual(["spec.paused is true: the rollout under way is paused, and none is started. Unpause it."]);
});

test("a change that waits for a rollout past its canaries says so, one that does not wait does not", () => {
  const promoting = (reason: string) => [notReady, { type: "Promoting" as const, status: "True" as const, reason }];
  expect(why(running(), {}, promoting("NextWaits"))[0]).toMatch(/^Its rollout of the agents to 1\.1\.0 is past its canaries .* Wait for its end/);
  expect(why(running(), {}, promoting("PastCanaries"))).toEqual([]);
});

test("after a failure it says how to try again, and which agents failed", () => {
  const failed = { rollout: { id: "r1", version: "1.1.0", state: "failed" as const } };
  const reasons = why(failed, {}, [
    notReady, { type: "Stalled", status: "True", reason: "RolloutFailed" }, { type: "Degraded", status: "True", reason: "AgentsFailed", message: "2 agents failed to reach 1.1.0: look at them, then ask again" },
  ]);
  expect(reasons).toHaveLength(2);
  expect(reasons[0]).toContain("the same spec is not tried again. Change the spec, or the value of the annotation muster.dev/force-rollout");
  expect(reasons[1]).toContain("2 agents failed to reach 1.1.0. See which agents failed.");
});

test("other reasons of the server are shown as it words them", () => {
  expect(why({ agents: 0 })).toEqual([expect.stringContaining("No agent belongs to it.")]);
  expect(why({ observedGeneration: 1 })).toEqual([expect.stringContaining("has not acted on the newest spec yet")]);
  expect(why({}, {}, [notReady, { type: "Stalled", status: "True", reason: "CannotStart", message: "version 1.1.0 is not published" }])[0]).toMatch(/^Version 1\.1\.0 is not published\./);
  expect(why({}, {}, [{ ...notReady, message: "2 agents do not run 1.1.0" }])).toEqual(["2 agents do not run 1.1.0. Wait some seconds."]);
  expect(why({ rollout: { id: "r", state: "paused", waiting: "3 failed" } }, {}, [notReady])[0]).toMatch(/^Its rollout of the agents is paused: 3 failed\./);
  expect(why({ conditions: undefined })).toEqual([expect.stringContaining("has not looked at it yet")]);
});

test("versions are listed by part, in the order of the rollouts", () => {
  const f = fleet({ versions: { agent: { "1.0.0": 1, "1.1.0": 3 }, db: { "": 4 } } }, { components: [{ name: "db", manifest: { profile: "edge", id: "2026-11" } }, { name: "web", version: "2.0.0" }] });
  expect(partsOf(f)).toMatchObject([
    { part: "agent", wants: "1.1.0", there: 3, agents: 4, versions: [{ version: "1.1.0", desired: true }, { version: "1.0.0", desired: false }] },
    { part: "db", wants: "edge/2026-11", there: undefined, versions: [{ version: "", agents: 4, desired: false }] },
    { part: "web", wants: "2.0.0", there: 0, agents: 0, versions: [] },
  ]);
  expect(holding(fleet({}, {}, [{ type: "Stalled", status: "True" }, { type: "Degraded", status: "Unknown" }]))).toEqual(["Stalled"]);
});

test("a promotion is forced only for a rollout under way, once for each hash", () => {
  expect(whyNotFleet("promote", fleet())).toBe("Its rollout is completed.");
  expect(whyNotFleet("promote", fleet({ requestedRolloutHash: undefined }))).toBe("No rollout has been requested yet.");
  expect(whyNotFleet("promote", fleet(running()))).toBeNull();
  expect(whyNotFleet("promote", fleet(running(), { forcePromote: HASH }))).toContain("already");
  expect(whyNotFleet("promote", fleet(running(), { forcePromote: "0".repeat(64) }))).toBeNull();
  expect(whyNotFleet("promote", fleet(running(), { strategy: { kind: "lockstep" } }))).toContain("lockstep");
  expect(whyNotFleet("resume", fleet())).toContain("not suspended");
  expect(whyNotFleet("unpause", fleet())).toContain("not paused");
  for (const c of FLEET_COMMANDS) expect(fleetCommandText(c, fleet()).title, c).toContain("web");
  expect(FLEET_COMMANDS.filter((c) => fleetCommandText(c, fleet()).typed)).toEqual(["promote", "delete"]);
});

test("a fleet of a repository names the tool that would undo a change", () => {
  const f = fleet();
  expect(managedBy(f)).toBe("");
  expect(managedBy({ ...f, metadata: { ...f.metadata, labels: { "app.kubernetes.io/managed-by": "terraform" } } })).toBe("terraform");
  expect(managedBy({ ...f, metadata: { ...f.metadata, annotations: { "argocd.argoproj.io/tracking-id": "x" } } })).toBe("Argo CD");
});

test("a review says whether a rollout starts", () => {
  const d: FleetDiff = { after: fleet(), hashAfter: HASH, hashBefore: HASH, changed: [], startsRollout: false, reason: "nothing changes", previews: [] };
  expect(startsText(d)).toEqual({ title: "Starts no rollout", text: "Nothing changes." });
  expect(startsText({ ...d, startsRollout: true, waitsFor: "the object is paused" }).title).toBe("Starts a rollout later");
  expect(startsNow({ ...d, startsRollout: true })).toBe(true);
  expect(startsNow({ ...d, startsRollout: true, waitsFor: "the object is paused" })).toBe(false);
  expect(startsNow({ ...d, startsRollout: true, previews: [{ part: "agent", targets: 0, batches: 0, skipped: 0, error: "no package of version 1.1.0 is published" }] })).toBe(false);
});
