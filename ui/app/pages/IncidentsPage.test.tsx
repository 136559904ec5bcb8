import { expect, test, vi } from "vitest";
import type { Incident } from "~/api/types";
import { button, click, pages, until } from "~/testing/page";

vi.setConfig({ testTimeout: 20_000 });

const page = pages();
const incident: Incident = {
  id: "i1",
  category: "upgrade_stalled",
  severity: "warning",
  state: "open",
  title: "web-01 runs 2.5.0, and does not become healthy",
  text: "it crashed",
  agent_id: "a1",
  hostname: "web-01",
  opened_at: "2026-01-02T10:00:00Z",
  count: 1,
  commands: [
    { name: "ack", allowed: true, primary: true },
    { name: "resolve", allowed: true },
  ],
};

async function show(...items: Incident[]): Promise<void> {
  page.answers["/api/v1/incidents"] = { items, total: items.length, page: 1, perPage: 50 };
  page.answers["/api/v1/rollouts"] = { items: [], total: 0, page: 1, perPage: 200 };
  await page.open("/incidents", "Incidents");
}

test("an incident leads to its host, and is acknowledged", async () => {
  page.answers["/api/v1/incidents/i1/ack"] = { item: { ...incident, state: "acknowledged" } };
  await show(incident);
  await until(() => document.body.textContent!.includes("It crashed."), "the incident");
  expect([...document.querySelectorAll("table a")].map((a) => a.getAttribute("href"))).toContain("/agents/a1");
  await click(button(`Acknowledge: ${incident.title}`));
  await click(button("Acknowledge incident", document.querySelector("[role=dialog]")!));
  await until(() => page.sent.some((s) => s.path === "/api/v1/incidents/i1/ack"), "the decision");
});

test("several incidents are resolved with one call, and what could not be is named", async () => {
  const other = { ...incident, id: "i2", title: "web-02 runs 2.5.0, and does not become healthy" };
  page.answers["/api/v1/incidents/resolve"] = {
    item: {
      resolved: 1,
      incidents: [
        { id: "i1", title: incident.title, result: "resolved" },
        { id: "i2", title: other.title, result: "failed", text: "It changed meanwhile." },
      ],
    },
  };
  await show(incident, other);
  await until(() => document.querySelectorAll("tbody input[type=checkbox]").length === 2, "the rows");
  for (const box of document.querySelectorAll<HTMLElement>("tbody input[type=checkbox]")) await click(box);
  await click(button("Resolve 2 incidents…"));
  await click(button("Resolve 2 incidents", document.querySelector("[role=dialog]")!));
  await until(
    () => document.body.textContent!.includes("1 incident is resolved, 1 is not. web-02 runs 2.5.0, and does not become healthy: It changed meanwhile."),
    "what is left",
  );
  expect(page.sent).toEqual([{ path: "/api/v1/incidents/resolve", body: { ids: ["i1", "i2"] } }]);
});

test("without incidents the page says what would appear", async () => {
  await show();
  await until(() => document.body.textContent!.includes("Nothing needs you"), "the empty state");
});
