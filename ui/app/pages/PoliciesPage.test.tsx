import { expect, test, vi } from "vitest";
import { button, click, pages, refusal, type, until } from "~/testing/page";

// A busy machine needs some seconds to draw a whole page.
vi.setConfig({ testTimeout: 30_000 });

const page = pages();

const policy = {
  namespace: "default",
  revision: 7,
  status: "active",
  is_managed: false,
  is_protected: false,
  inactivity_timeout: 86_400,
  updated_at: "2026-01-02T10:00:00Z",
  updated_by: "ann",
  package_policies: [],
  agents: 3,
};
const edge = {
  ...policy,
  id: "edge",
  name: "Edge sites",
  components: [
    { name: "web", runtime: "systemd", version: "2.4.0", server_config: true, health: { wait_seconds: 300 }, lockstep: true, in_force: { version: "2.3.0" } },
  ],
};
const entry = (revision: number, text: string, data: object) => ({
  id: `${revision}`,
  at: "2026-01-02T10:00:00Z",
  actor: "ann",
  verb: "policy.update",
  subject: "edge",
  text,
  data: { revision, name: "Edge sites", ...data },
});

function answer() {
  page.answers["/api/fleet/agent_policies"] = {
    items: [{ ...policy, id: "default", name: "Default policy", is_default: true, agents: 0 }, edge],
    total: 2,
    page: 1,
    perPage: 50,
  };
  page.answers["/api/fleet/agent_policies/edge"] = { item: edge };
  page.answers["/api/fleet/agent_policies/edge/auto_upgrade_agents_status"] = {
    currentVersions: [{ version: "2.4.0", agents: 3, failedUpgradeAgents: 0, inProgressUpgradeAgents: 0 }],
    totalAgents: 3,
  };
  page.answers["/api/v1/rollouts"] = { items: [], total: 0, page: 1, perPage: 200 };
  page.answers["/api/v1/audit"] = {
    items: [
      entry(7, "ann changed the policy Edge sites: inactivity_timeout", { inactivity_timeout: 86_400 }),
      entry(6, "ann created the policy Edge sites", { inactivity_timeout: 3600 }),
    ],
    total: 2,
    page: 1,
    perPage: 100,
  };
}

test("policies are listed with their hosts and components", async () => {
  answer();
  await page.open("/policies", "Edge sites");
  const rows = [...document.querySelectorAll("tbody tr")].map((row) => [...row.children].slice(0, 5).map((c) => c.textContent));
  expect(rows).toEqual([
    ["Default policydefault", "0", "none", "–", "7"],
    ["Edge sites", "3", "web", "–", "7"],
  ]);
});

test("a policy shows what its hosts run, and what its last revision changed", async () => {
  answer();
  await page.open("/policies/edge", "Revision 7");
  expect(document.body.textContent).toContain("In lockstep, 2.3.0 in force");
  const diff = document.querySelector("[aria-label='Difference from revision 6 to 7']")!;
  expect([...diff.querySelectorAll("[data-kind]")].filter((l) => l.getAttribute("data-kind") !== "same").map((l) => l.textContent!.trim())).toEqual([
    "- inactivity_timeout: 3600",
    "+ inactivity_timeout: 86400",
  ]);
  expect(document.body.textContent).toContain("muster policies update edge --components components.yaml");
});

test("only a reviewed change of the newest revision is saved", async () => {
  answer();
  await page.open("/policies/edge?edit=true", "Review changes");
  expect(button("Review changes").getAttribute("aria-disabled")).toBe("true");
  const description = document.querySelectorAll("textarea")[0]!;
  await type(description, "Small gateways");
  await click(button("Review changes"));
  await until(() => document.body.textContent!.includes("Change Edge sites for 3 hosts?"), "the review opens");
  page.answers["/api/fleet/agent_policies/edge"] = { item: { ...edge, revision: 8, updated_by: "ben" } };
  await click(button("Save changes"));
  await until(() => document.body.textContent!.includes("ben has changed the policy to revision 8 since you began"), "the change is refused");
  expect(page.sent).toEqual([]);
});

test("a policy that cannot be read keeps the page", async () => {
  page.answers["/api/fleet/agent_policies/gone"] = refusal(404, "Agent policy gone not found");
  await page.open("/policies/gone", "The policy gone could not be read");
  expect(button("Retry")).toBeTruthy();
});
