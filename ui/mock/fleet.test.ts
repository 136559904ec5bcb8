import { expect, test } from "vitest";
import { MockFleet } from "./fleet";

function run(version: string) {
  let now = Date.parse("2026-01-02T12:00:00Z");
  const fleet = new MockFleet(() => now, 3);
  const ids = [...fleet.agents.keys()];
  const id = fleet.upgrade(ids, version, false);
  for (let i = 0; i < 100; i++) {
    now += 350;
    fleet.tick();
  }
  return { fleet, action: fleet.actions.find((a) => a.actionId === id)!, agents: ids.map((i) => fleet.agents.get(i)!) };
}

test("in the mock a good version succeeds and a bad one is rolled back", () => {
  const good = run("1.1.0");
  expect(good.agents.map((a) => [a.agent.version, a.status, a.upgrade_details])).toEqual(Array(3).fill(["1.1.0", "online", null]));
  expect(good.action).toMatchObject({ status: "COMPLETE", nbAgentsAck: 3, nbAgentsFailed: 0 });
  expect(good.agents.map((a) => a.rollback)).toEqual(Array(3).fill(expect.objectContaining({ available: true, version: "1.0.0" })));
  const bad = run("1.2.0");
  expect(bad.agents.map((a) => [a.agent.version, a.upgrade_status, a.upgrade_details?.metadata?.reason_code])).toEqual(Array(3).fill(["1.0.0", "rolled_back", "crash_loop"]));
  expect(bad.action).toMatchObject({ status: "FAILED", nbAgentsFailed: 3 });
});

test("in the mock agents roll back to their previous version, also while they are watched", () => {
  let now = Date.parse("2026-01-02T12:00:00Z");
  const fleet = new MockFleet(() => now, 4);
  const [web, , , api] = [...fleet.agents.values()];
  const until = (ok: () => boolean) => {
    for (let i = 0; i < 200 && !ok(); i++) {
      now += 350;
      fleet.tick();
    }
    expect(ok()).toBe(true);
  };
  expect(fleet.rollback([web!.id])).toEqual([]);
  fleet.rollback([api!.id]);
  until(() => api!.agent.version === "1.0.0" && api!.upgraded_at !== null);
  expect(fleet.actions[0]).toMatchObject({ rollback: true, status: "COMPLETE", version: "1.0.0" });

  const up = fleet.upgrade([web!.id], "1.1.0", false);
  until(() => web!.upgrade_details?.state === "UPG_WATCHING");
  expect(web!.watch).toMatchObject({ stage: "watching", from: "1.0.0" });
  fleet.rollback([web!.id]);
  until(() => web!.agent.version === "1.0.0" && web!.upgraded_at !== null);
  expect(fleet.actions.find((a) => a.actionId === up)).toMatchObject({ status: "FAILED" });
});
