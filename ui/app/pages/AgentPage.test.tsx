import { expect, test, vi } from "vitest";
import type { Agent, AgentComponent, TimelineEntry } from "~/api/types";
import { agent, component } from "~/testing/agent";
import { button, click, pages, type, until } from "~/testing/page";

// The dialogs with their lists take seconds without a real browser when the machine is busy.
vi.setConfig({ testTimeout: 20_000 });

const page = pages();
const text = () => document.body.textContent!;
const row = (name: string) => document.querySelector(`tr[aria-label='${name}']`)!;

const COMMANDS = [
  { name: "upgrade", allowed: true, primary: true },
  { name: "rollback", allowed: false, danger: true, reason: "It has kept no version." },
  { name: "diagnostics", allowed: true },
  { name: "tag", allowed: true },
];

async function show(change: Partial<Agent> = {}, timeline: TimelineEntry[] = [], path = "/agents/a1"): Promise<void> {
  page.answers["/api/fleet/agents/a1"] = { item: agent({ id: "a1", health: "healthy", commands: COMMANDS, ...change }) };
  page.answers["/api/v1/agents/a1/why"] = { item: { agent_id: "a1", at: "2026-01-02T10:00:00Z", summary: "it runs 1.0.0", chain: [] } };
  page.answers["/api/v1/agents/a1/timeline"] = { items: timeline };
  page.answers["/api/fleet/agents/a1/uploads"] = { items: [] };
  page.answers["/api/fleet/agent_policies"] = { items: [], total: 0, page: 1, perPage: 1000 };
  await page.open(path, "Timeline");
}

const upgrade: TimelineEntry = {
  id: "e1",
  at: "2026-01-02T09:00:00Z",
  ended_at: "2026-01-02T09:10:00Z",
  kind: "upgrade",
  from: "1.0.0",
  to: "1.1.0",
  state: "rolled_back",
  by: "ann",
  rollout: { id: "r1", name: "Spring" },
  reason: { code: "crash_loop", text: "it crashed 3 times" },
  phases: [
    { state: "sent", at: "2026-01-02T09:00:00Z" },
    { state: "watching", at: "2026-01-02T09:01:00Z" },
    { state: "rolled_back", at: "2026-01-02T09:10:00Z" },
  ],
};

test("the timeline shows who ordered an upgrade, how it ended and why", async () => {
  await show({}, [upgrade]);
  await until(() => text().includes("Rolled back to 1.0.0"), "the entry");
  for (const shown of ["Upgrade of the agent to 1.1.0", "after 10 min", "by ann with the rollout Spring", "It crashed 3 times."])
    expect(text()).toContain(shown);
  await click(button("Upgrade of the agent to 1.1.0"));
  await until(() => document.querySelector("table[aria-label^='Phases']") !== null, "the phases");
  expect(document.querySelector("table[aria-label^='Phases']")!.textContent).toContain("9 min");
});

test("an upgrade under way is committed only by its watcher", async () => {
  await show({ progress: { state: "watching", version: "1.1.0", from: "1.0.0" } });
  const box = document.querySelector("section[aria-label='Upgrade from 1.0.0 to 1.1.0']")!;
  expect(box.querySelector("[aria-current=step]")!.textContent).toContain("Watching");
  expect([...box.querySelectorAll("li")].at(-1)!.textContent).toBe("Committed, not begun");
});

test("an upgrade of an offline host waits for it", async () => {
  await show({ health: "offline", progress: { state: "waiting_for_host", version: "1.1.0" } });
  expect(text()).toContain("Waiting for the host");
  expect(text()).toContain("The upgrade waits for the host");
});

test("a rollback that would go forward says so, and is ordered only if that is chosen", async () => {
  const cause = { code: "forward", text: "The other version that the host keeps is a later one, as after a rollback.", count: 1, will: false };
  const item = { agent_id: "a1", hostname: "web-01", version: "1.0.0" };
  page.answers["/api/v1/rollback_preview"] = { will: 0, wont: 1, items: [{ ...item, will: false }], causes: [cause] };
  page.answers["/api/fleet/agents/a1/rollback"] = { actionId: "action-1" };
  await show({
    rollback: { available: true, version: "1.1.0" },
    commands: [{ name: "rollback", allowed: false, danger: true, reason: "It would go forward." }],
  });
  await click(button("More"));
  await until(() => document.querySelector("[role=menuitem]") !== null, "the menu");
  await click(document.querySelector<HTMLElement>("[role=menuitem]")!);
  await until(() => text().includes("The other version that the host keeps is a later one"), "the reason");
  expect(button("Roll back 0 hosts").getAttribute("aria-disabled")).toBe("true");
  page.answers["/api/v1/rollback_preview"] = { will: 1, wont: 0, items: [{ ...item, will: true, to: "1.1.0" }] };
  await click(document.querySelector<HTMLElement>("[role=dialog] input[type=checkbox]")!);
  await until(() => !!button("Move 1 host to 1.1.0"), "the preview with the choice");
  await click(button("Move 1 host to 1.1.0"));
  await until(() => page.sent.some((s) => s.path === "/api/fleet/agents/a1/rollback"), "the order");
  expect(page.sent.at(-1)).toEqual({ path: "/api/fleet/agents/a1/rollback", body: { forward: true } });
});

test("a command that is not possible shows the server's reason", async () => {
  await show();
  expect(button("Upgrade host…")).toBeTruthy();
  await click(button("More"));
  await until(() => text().includes("It has kept no version."), "the reason");
});

test("a host of a fleet is upgraded once the fleet is named", async () => {
  const preview = { version: "1.1.0", will: 1, wont: 0, items: [{ agent_id: "a1", hostname: "web-01", version: "1.0.0", will: true }] };
  const owned = { code: "fleet", text: "The agent belongs to the fleet web.", count: 1, will: true, choice: "take_over" };
  page.answers["/api/fleet/agents/available_versions"] = { items: ["1.1.0"] };
  page.answers["/api/v1/upgrade_preview"] = { ...preview, refused: "1 of the agents belong to the fleet web", causes: [owned] };
  page.answers["/api/fleet/agents/a1/upgrade"] = { actionId: "x" };
  await show();
  await click(button("Upgrade host…"));
  await until(() => text().includes("The agent belongs to the fleet web."), "the cause");
  const dialog = document.querySelector("[role=dialog]")!;
  const confirm = () => [...dialog.querySelectorAll("button")].find((b) => b.textContent!.startsWith("Take over: "))!;
  expect(confirm().getAttribute("aria-disabled")).toBe("true");
  expect(text()).not.toContain("A freeze forbids it.");
  page.answers["/api/v1/upgrade_preview"] = { ...preview, causes: [] };
  const name = [...dialog.querySelectorAll("label")].find((l) => l.textContent!.startsWith("To take the agents over"))!;
  await type(dialog.querySelector<HTMLInputElement>(`[id='${name.htmlFor}']`)!, "web");
  await until(() => !confirm().getAttribute("aria-disabled"), "the preview of taking over");
  await click(confirm());
  await until(() => page.sent.some((s) => s.path.endsWith("/a1/upgrade") && (s.body as { take_over?: string }).take_over === "web"), "the order");
});

test("the server's causes are shown, and included, when a host is unenrolled", async () => {
  const managed = { code: "managed", text: "The policy is managed.", count: 1, will: false, choice: "force", sample: ["web-01"] };
  page.answers["/api/v1/unenroll_preview"] = {
    will: 0,
    wont: 1,
    items: [{ agent_id: "a1", hostname: "web-01", status: "online", will: false, reason: "managed" }],
    causes: [managed],
  };
  await show({ commands: [...COMMANDS, { name: "unenroll", allowed: true, danger: true }] });
  await click(button("More"));
  await until(() => !!button("Unenrol host…"), "the menu");
  await click(button("Unenrol host…"));
  await until(() => text().includes("The policy is managed."), "the cause");
  expect(text()).toContain("Its agent stops checking in");
  await click([...document.querySelectorAll("[role=dialog] label")].find((l) => l.textContent === "Include this host anyway") as HTMLElement);
  await until(() => page.sent.some((s) => s.path.endsWith("/unenroll_preview") && (s.body as { force?: boolean }).force === true), "the preview with force");
});

test("diagnostics are requested, once the server has counted the host", async () => {
  page.answers["/api/fleet/agents/bulk_request_diagnostics"] = { actionId: "x", count: 1 };
  await show();
  await click(button("Request diagnostics"));
  const dialog = document.querySelector("[role=dialog]")!;
  const confirm = "Request diagnostics of 1 host";
  await until(() => !!button(confirm, dialog) && !button(confirm, dialog).getAttribute("aria-disabled"), "the count");
  await click(button(confirm, dialog));
  await until(() => page.sent.some((s) => s.path.endsWith("/bulk_request_diagnostics") && !(s.body as { dryRun?: boolean }).dryRun), "the order");
});

const components = (...list: AgentComponent[]) => show({ components: list });

test("a component shows its versions and the progress of its upgrade", async () => {
  await components(component({ desired_version: "2.5.0", last_healthy_version: "2.3.0", progress: { state: "watching", version: "2.5.0" } }));
  for (const shown of ["systemd", "Healthy", "2.4.0", "wants 2.5.0", "2.3.0", "Watching"]) expect(row("web-server").textContent).toContain(shown);
});

test("a component that a rollout holds leads to the rollout", async () => {
  await components(component({ rollout: { id: "r1", name: "Spring" } }));
  expect(row("web-server").querySelector("a")!.getAttribute("href")).toBe("/rollouts/r1");
});

test("a component is only ordered to do what the server allows", async () => {
  await components(
    component({
      commands: [
        { name: "upgrade", allowed: true },
        { name: "rollback", allowed: false, reason: "It has no other version that its host has kept." },
      ],
    }),
  );
  await click(button("Commands for web-server"));
  await until(() => text().includes("It has no other version that its host has kept."), "the menu");
  expect([...document.querySelectorAll("[role=menuitem]")].map((m) => m.textContent)).toEqual([
    "Upgrade…",
    "Roll back…Not possible now: It has no other version that its host has kept.",
  ]);
});

test("components of other agents have no version, and no commands", async () => {
  await components({
    id: "logs-default",
    type: "filestream",
    status: "DEGRADED",
    message: "slow",
    units: [{ id: "out", type: "output", status: "FAILED", message: "refused" }],
  });
  for (const shown of ["filestream", "Degraded", "Slow.", "output out", "Failed", "Refused."]) expect(row("logs-default").textContent).toContain(shown);
  expect(row("logs-default").querySelector("button")).toBeNull();
});
