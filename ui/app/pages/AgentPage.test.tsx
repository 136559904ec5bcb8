import { expect, test, vi } from "vitest";
import type { AgentComponent } from "~/api/types";
import { agent, component, details } from "~/testing/agent";
import { button, click, pages, until } from "~/testing/page";

// The dialog with its lists takes seconds without a real browser when the machine is busy.
vi.setConfig({ testTimeout: 20_000 });

const page = pages();
const entry = (name: string) => document.querySelector(`[aria-label='Components'] > [aria-label='${name}']`)!;

async function show(...components: AgentComponent[]): Promise<void> {
  page.answers["/api/fleet/agents/a1"] = { item: agent({ id: "a1", components }) };
  page.answers["/api/v1/agents/a1/why"] = { item: { agent_id: "a1", at: "2026-01-02T10:00:00Z", summary: "it runs 1.0.0", chain: [] } };
  page.answers["/api/fleet/agent_policies"] = { items: [], total: 0, page: 1, perPage: 1000 };
  page.answers["/api/fleet/agents/available_versions"] = { items: ["1.0.0"] };
  page.answers["/api/v1/packages"] = { items: [{ version: "2.5.0", component: "web-server", file: "w" }, { version: "2.4.0", component: "web-server", file: "v" }, { version: "9.0.0", file: "a" }] };
  await page.open("/agents/a1", components[0]!.id);
}

test("a component shows its versions, and the phase of its upgrade as it happens", async () => {
  await show(component({
    desired_version: "2.5.0", last_healthy_version: "2.3.0", upgrade_status: "started",
    upgrade_details: { ...details("UPG_WATCHING", { phase: "VERIFYING" }), target_version: "2.5.0" },
  }));
  const text = entry("web-server").textContent!;
  for (const shown of ["systemd", "HEALTHY", "runs 2.4.0", "desired 2.5.0, not yet", "last healthy 2.3.0", "Upgrade to 2.5.0", "VERIFYING", "Verifying that it is healthy"]) expect(text).toContain(shown);
  expect(button("Upgrade web-server").getAttribute("aria-disabled")).toBe("true");
});

test("a component that a rollout holds leads to the rollout, and is not upgraded here", async () => {
  await show(component({ rollout: { id: "r1", name: "Spring" } }));
  expect(entry("web-server").querySelector("a")!.getAttribute("href")).toBe("/rollouts/r1");
  expect(button("Upgrade web-server").getAttribute("aria-disabled")).toBe("true");
});

test("a component that was rolled back shows why", async () => {
  const ended = (upgrade_status: "rolled_back" | "failed", metadata: Parameters<typeof details>[1]) =>
    component({ id: upgrade_status, name: upgrade_status, upgrade_status, upgrade_details: { ...details("UPG_FAILED", { failed_state: "UPG_WATCHING", ...metadata }), target_version: "2.5.0" } });
  await show(ended("rolled_back", { error_msg: "it answered 503" }), ended("failed", { error_msg: "disk full", reason_code: "FAILED_ROLLBACK" }));
  expect(entry("rolled_back").textContent).toContain("Rolled back from 2.5.0It answered 503.");
  expect(entry("failed").textContent).toContain("Its upgrade to 2.5.0 failedDisk full.Reason code FAILED_ROLLBACK");
});

test("a component is upgraded to a version of its own packages", async () => {
  page.answers["/api/v1/components/web-server/upgrade_preview"] = { version: "2.5.0", will: 1, wont: 0, items: [{ agent_id: "a1", hostname: "web-01", version: "2.4.0", will: true }] };
  page.answers["/api/v1/components/web-server/upgrade"] = { actionId: "x" };
  await show(component());
  await click(button("Upgrade web-server"));
  const dialog = document.querySelector("[role=dialog]")!;
  expect(dialog.textContent).toContain("Upgrade web-server on web-01");
  await until(() => dialog.textContent!.includes("1 agent will be upgraded"), "the preview");
  await click(button("Upgrade web-server on 1 agent", dialog));
  await until(() => page.sent.some((s) => s.path.endsWith("/upgrade")), "the order");
  expect(page.sent.at(-1)).toEqual({ path: "/api/v1/components/web-server/upgrade", body: { agents: ["a1"], version: "2.5.0", force: false, includeInactive: true } });
});

test("a version is only staged, and the page lists what is staged", async () => {
  page.answers["/api/v1/stage_preview"] = { version: "2.5.0", will: 1, wont: 0, items: [{ agent_id: "a1", hostname: "web-01", version: "2.4.0", will: true }] };
  page.answers["/api/v1/components/web-server/upgrade_preview"] = page.answers["/api/v1/stage_preview"];
  page.answers["/api/v1/stage"] = { actionId: "x" };
  await show(component());
  expect(document.body.textContent).not.toContain("Staged");
  await click(button("Upgrade web-server"));
  const dialog = document.querySelector("[role=dialog]")!;
  await click(dialog.querySelector<HTMLInputElement>("input[value=stage]")!);
  await until(() => dialog.textContent!.includes("1 agent will stage it") && !button("Stage on 1 agent", dialog).getAttribute("aria-disabled"), "the preview");
  page.answers["/api/fleet/agents/a1"] = { item: agent({ id: "a1", components: [component()], staged_versions: ["1.1.0", "web-server 2.5.0"] }) };
  await click(button("Stage on 1 agent", dialog));
  await until(() => page.sent.some((s) => s.path === "/api/v1/stage"), "the order");
  expect(page.sent.at(-1)!.body).toEqual({ agents: ["a1"], version: "2.5.0", component: "web-server", force: false, includeInactive: true });
  await until(() => document.body.textContent!.includes("1.1.0, web-server 2.5.0"), "what is staged");
});

test("a component goes back to a version that its host has kept", async () => {
  page.answers["/api/v1/components/web-server/upgrade_preview"] = { version: "2.3.0", will: 1, wont: 0, items: [{ agent_id: "a1", hostname: "web-01", version: "2.4.0", will: true }] };
  page.answers["/api/v1/components/web-server/upgrade"] = { actionId: "x" };
  await show(component(), component({ id: "db", name: "db", rollbacks: undefined }));
  expect(button("Roll back db").getAttribute("aria-disabled")).toBe("true");
  await click(button("Roll back web-server"));
  const dialog = document.querySelector("[role=dialog]")!;
  await until(() => dialog.textContent!.includes("1 agent will be rolled back"), "the preview");
  await click(button("Roll back web-server on 1 agent", dialog));
  await until(() => page.sent.some((s) => s.path.endsWith("/upgrade")), "the order");
  expect(page.sent.at(-1)!.body).toEqual({ agents: ["a1"], version: "2.3.0", force: false, rollback: true, includeInactive: true });
});

test("the unit of a component, which repeats its state, is not shown", async () => {
  await show(component({ units: [{ id: "component-web-server", type: "input", status: "HEALTHY", message: "" }] }));
  expect(entry("web-server").textContent).not.toContain("component-web-server");
});

test("components of other agents have no version, and no commands", async () => {
  await show({ id: "logs-default", type: "filestream", status: "DEGRADED", message: "slow", units: [{ id: "out", type: "output", status: "FAILED", message: "refused" }] });
  const text = entry("logs-default").textContent!;
  for (const shown of ["filestream", "DEGRADED", "Slow.", "out output", "FAILED", "Refused."]) expect(text).toContain(shown);
  expect(entry("logs-default").querySelector("button")).toBeNull();
});
