import { expect, test } from "vitest";
import type { FleetDiff } from "~/api/types";
import { fleet, HASH } from "~/testing/fleet";
import { fleetCommandText, fleetMenu, holding, managedBy, obstaclesOf, partsOf, startsNow, startsText } from "./fleet";

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
    expect.stringMatching(/^ann took its hosts over 1 h ago: “disk is full”\. Muster leaves them alone\. Resume it, or change its spec\.$/),
  ]);
  expect(why({}, { paused: true }, [notReady, { type: "Stalled", status: "True", reason: "Paused" }])).toEqual([
    "spec.paused is true: the rollout under way is paused, and none is started. Unpause it.",
  ]);
});

test("a change that waits for a rollout past its canaries says so, one that does not wait does not", () => {
  const promoting = (reason: string) => [notReady, { type: "Promoting" as const, status: "True" as const, reason }];
  expect(why(running(), {}, promoting("NextWaits"))[0]).toMatch(/^Its rollout of the agents to 1\.1\.0 is past its canaries .* Wait for its end/);
  expect(why(running(), {}, promoting("PastCanaries"))).toEqual([]);
});

test("after a failure it says how to try again, and which agents failed", () => {
  const failed = { rollout: { id: "r1", version: "1.1.0", state: "failed" as const } };
  const reasons = why(failed, {}, [
    notReady,
    { type: "Stalled", status: "True", reason: "RolloutFailed" },
    { type: "Degraded", status: "True", reason: "AgentsFailed", message: "2 agents failed to reach 1.1.0: look at them, then ask again" },
  ]);
  expect(reasons).toHaveLength(2);
  expect(reasons[0]).toContain("the same spec is not tried again. Change the spec, or the value of the annotation muster.dev/force-rollout");
  expect(reasons[1]).toContain("2 agents failed to reach 1.1.0. See which hosts failed.");
});

test("other reasons of the server are shown as it words them", () => {
  expect(why({ agents: 0 })).toEqual([expect.stringContaining("No host belongs to it.")]);
  expect(why({ observedGeneration: 1 })).toEqual([expect.stringContaining("has not acted on the newest spec yet")]);
  expect(why({}, {}, [notReady, { type: "Stalled", status: "True", reason: "CannotStart", message: "version 1.1.0 is not published" }])[0]).toMatch(
    /^Version 1\.1\.0 is not published\./,
  );
  expect(why({}, {}, [{ ...notReady, message: "2 agents do not run 1.1.0" }])).toEqual(["2 agents do not run 1.1.0. Wait some seconds."]);
  expect(why({ rollout: { id: "r", state: "paused", waiting: "3 failed" } }, {}, [notReady])[0]).toMatch(/^Its rollout of the agents is paused: 3 failed\./);
  expect(why({ conditions: undefined })).toEqual([expect.stringContaining("has not looked at it yet")]);
});

test("versions are listed by part, in the order of the rollouts", () => {
  const f = fleet(
    { versions: { agent: { "1.0.0": 1, "1.1.0": 3 }, db: { "": 4 } } },
    {
      components: [
        { name: "db", manifest: { profile: "edge", id: "2026-11" } },
        { name: "web", version: "2.0.0" },
      ],
    },
  );
  expect(partsOf(f)).toMatchObject([
    {
      part: "agent",
      wants: "1.1.0",
      there: 3,
      agents: 4,
      versions: [
        { version: "1.1.0", desired: true },
        { version: "1.0.0", desired: false },
      ],
    },
    { part: "db", wants: "edge/2026-11", there: undefined, versions: [{ version: "", agents: 4, desired: false }] },
    { part: "web", wants: "2.0.0", there: 0, agents: 0, versions: [] },
  ]);
  expect(
    holding(
      fleet({}, {}, [
        { type: "Stalled", status: "True" },
        { type: "Degraded", status: "Unknown" },
      ]),
    ),
  ).toEqual(["Stalled"]);
});

test("the menu has the server's commands and the editor, and either pause or unpause", () => {
  const command = (name: string, allowed: boolean, more = {}) => ({ name, allowed, ...(allowed ? {} : { reason: "It is not." }), ...more });
  const running = [command("resume", false), command("pause", true), command("unpause", false), command("promote", false), command("delete", true)];
  expect(fleetMenu(running).map((c) => c.name)).toEqual(["edit", "resume", "pause", "promote", "delete"]);
  expect(fleetMenu(running)[0]).toMatchObject({ allowed: true, primary: true });
  const paused = [command("unpause", true, { primary: true }), command("resume", false), command("pause", false)];
  expect(fleetMenu(paused)).toMatchObject([{ name: "edit", primary: false }, { name: "unpause", primary: true }, { name: "resume" }]);
});

test("what cannot be undone is confirmed by typing the name", () => {
  const all = ["pause", "unpause", "promote", "resume", "delete"] as const;
  for (const c of all) expect(fleetCommandText(c, fleet()).title, c).toContain("web");
  expect(all.filter((c) => fleetCommandText(c, fleet()).typed)).toEqual(["promote", "delete"]);
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
  expect(
    startsNow({
      ...d,
      startsRollout: true,
      previews: [{ part: "agent", targets: 0, batches: 0, skipped: 0, error: "no package of version 1.1.0 is published" }],
    }),
  ).toBe(false);
});
