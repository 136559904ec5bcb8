import { expect, test } from "vitest";
import { pages } from "~/testing/page";

const page = pages();

test("a policy shows its components, and the command that changes them", async () => {
  const policy = { namespace: "default", revision: 7, status: "active", is_managed: false, is_protected: false, updated_at: "2026-01-02T10:00:00Z", updated_by: "ann", package_policies: [], agents: 3 };
  page.answers["/api/fleet/agent_policies"] = {
    items: [
      { ...policy, id: "default", name: "Default policy" },
      { ...policy, id: "edge", name: "Edge sites", components: [{ name: "web", runtime: "systemd", version: "2.4.0", server_config: true, health: { wait_seconds: 300 }, lockstep: true, in_force: { version: "2.3.0" } }] },
    ],
    total: 2, page: 1, perPage: 1000,
  };
  await page.open("/policies", "Edge sites");
  expect([...document.querySelector("tbody tr")!.children].map((c) => c.textContent)).toEqual(["web", "systemd", "2.4.0in lockstep, 2.3.0 in force", "300 s", "rendered by the server, where the package allows it"]);
  expect(document.body.textContent).toContain("Its agents run no components.");
  expect(document.body.textContent).toContain("muster policies update edge --components components.yaml");
});
