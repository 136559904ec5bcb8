import { expect, test, vi } from "vitest";
import type { ActionStatus } from "~/api/types";
import { button, click, pages, until } from "~/testing/page";

vi.setConfig({ testTimeout: 20_000 });

const page = pages();
const text = () => document.body.textContent!;

const action = (change: Partial<ActionStatus> = {}): ActionStatus => ({
  actionId: "x1",
  type: "UPGRADE",
  status: "IN_PROGRESS",
  outcome: "IN_PROGRESS",
  version: "2.4.1",
  creationTime: "2026-01-02T09:00:00Z",
  created_by: "ann",
  nbAgentsActioned: 10,
  nbAgentsActionCreated: 10,
  nbAgentsAck: 10,
  nbAgentsFailed: 0,
  nbAgentsDone: 0,
  hasRolloutPeriod: false,
  latestErrors: [],
  progress: { watching: 8, committed: 2 },
  commands: [{ name: "cancel", allowed: true }],
  ...change,
});

async function show(path: string, ...items: ActionStatus[]): Promise<void> {
  page.answers["/api/fleet/agents/action_status"] = { items };
  page.answers["/api/v1/actions/x1/agents"] = {
    items: [
      { agentId: "a1", hostname: "web-01", state: "failed", reason: { code: "x", text: "disk full" } },
      { agentId: "a2", state: "stopped", text: "Another order has replaced it." },
    ],
    total: 2,
    page: 1,
    perPage: 25,
  };
  page.answers["/api/fleet/agent_policies"] = { items: [], total: 0, page: 1, perPage: 1000 };
  await page.open(path, "Activity");
}

test("an acknowledged upgrade is watched, not done", async () => {
  await show("/activity", action());
  await until(() => text().includes("Upgrade to 2.4.1"), "the action");
  for (const shown of ["8 watching", "2 committed", "of 10 hosts", "by ann"]) expect(text()).toContain(shown);
  expect(text()).not.toContain("10 done");
});

test("an action is cancelled with a reason", async () => {
  page.answers["/api/fleet/agents/actions/x1/cancel"] = { item: { id: "c", actionId: "c" } };
  await show("/activity", action());
  await until(() => !!button("Cancel Upgrade to 2.4.1"), "the action");
  await click(button("Cancel Upgrade to 2.4.1"));
  await click(button("Cancel upgrade", document.querySelector("[role=dialog]")!));
  await until(() => page.sent.some((s) => s.path.endsWith("/x1/cancel")), "the order");
});

test("a link opens an action with its failures by cause", async () => {
  const causes = [{ code: "crash_loop", text: "the new version kept crashing", state: "rolled_back" as const, count: 3 }];
  await show("/activity?open=x1", action({ outcome: "FAILED", progress: { rolled_back: 3, committed: 7 }, causes }));
  await until(() => text().includes("Failures by cause"), "the details");
  expect(text()).toContain("3 The new version kept crashing.");
});

test("an action shows its hosts with the outcome on each", async () => {
  await show("/activity", action({ progress: { failed: 1 }, nbAgentsActioned: 2, nbAgentsActionCreated: 2 }));
  await until(() => !!button("Details of Upgrade to 2.4.1"), "the action");
  await click(button("Details of Upgrade to 2.4.1"));
  await until(() => text().includes("web-01"), "its hosts");
  expect(window.location.search).toContain("open=x1");
  const hosts = document.querySelector("section[aria-label=Hosts]")!;
  for (const shown of ["Failed", "Disk full.", "a2", "Stopped", "Another order has replaced it.", "1–2 of 2 hosts"]) expect(hosts.textContent).toContain(shown);
  await click([...document.querySelectorAll("a")].find((a) => a.textContent === "1 failed")!);
  await until(() => window.location.search.includes("state=failed"), "the failed hosts");
  await click(button("Details of Upgrade to 2.4.1"));
  await until(() => !window.location.search.includes("open"), "the address without the action");
  expect(document.querySelector("section[aria-label=Hosts]")).toBeNull();
});

test("a link opens an action of any page", async () => {
  page.answers["/api/v1/actions/x1"] = { item: action() };
  await show("/activity?open=x1", action({ actionId: "x9", version: "9.0.0" }));
  await until(() => text().includes("web-01"), "the hosts of the action");
  const linked = document.querySelector("section[aria-label='The action of the link']")!;
  expect(linked.textContent).toContain("Upgrade to 2.4.1");
  expect(linked.textContent).not.toContain("9.0.0");
  expect(text()).toContain("Upgrade to 9.0.0");
});

test("a link to an action that is gone says so", async () => {
  await show("/activity?open=gone", action());
  await until(() => text().includes("no /api/v1/actions/gone"), "the error");
  expect(text()).toContain("Upgrade to 2.4.1");
});
