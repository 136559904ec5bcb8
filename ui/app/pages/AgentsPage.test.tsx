import { expect, test } from "vitest";
import { agent } from "~/testing/agent";
import { button, click, pages, refusal, until } from "~/testing/page";

const page = pages();

function fleet() {
  page.answers["/api/fleet/agents"] = {
    items: [agent({ host: "web-01", health: "healthy" }), agent({ host: "web-02", health: "offline" })],
    total: 1234,
    page: 1,
    perPage: 50,
  };
  page.answers["/api/v1/agents/facets"] = {
    total: 1234,
    facets: [
      {
        field: "health",
        other: 0,
        values: [
          { value: "healthy", count: 1200, kuery: "health: healthy" },
          { value: "offline", count: 34, kuery: "health: offline" },
        ],
      },
    ],
  };
  page.answers["/api/v1/attention"] = { items: [], failures_unseen: 0, incidents_open: 0 };
  page.answers["/api/v1/views"] = { items: [] };
  page.answers["/api/fleet/agent_policies"] = { items: [] };
}

test("without a selection no order is possible, and all that match is their query with its count", async () => {
  fleet();
  page.answers["/api/fleet/agents/tags"] = { items: ["prod"] };
  page.answers["/api/fleet/agents/bulk_update_agent_tags"] = { count: 1234 };
  await page.open("/agents?kuery=web", "1,234 hosts match");
  expect(button("Upgrade…").getAttribute("aria-disabled")).toBe("true");
  await click(button("Select all 1,234 that match"));
  await until(() => document.body.textContent!.includes("All 1,234 hosts selected"), "the whole selection");
  await click(button("Tag…"));
  await until(() => document.body.textContent!.includes("Change the tags of 1,234 hosts?"), "the dialog");
  expect(page.sent).toContainEqual({
    path: "/api/fleet/agents/bulk_update_agent_tags",
    body: expect.objectContaining({ agents: "host: *web*", dryRun: true }),
  });
});

test("an order for hosts of an active rollout says that the rollout goes on with them", async () => {
  fleet();
  page.answers["/api/fleet/agents/tags"] = { items: ["prod"] };
  page.answers["/api/fleet/agents/bulk_update_agent_tags"] = {
    count: 1234,
    warnings: [
      "2 agents are targets of the active rollout “web” (up3rbscs2ll5n7rb5v3ra3trxh), whose targets were fixed when it was started: it goes on with them",
    ],
  };
  await page.open("/agents?kuery=web", "1,234 hosts match");
  await click(button("Select all 1,234 that match"));
  await until(() => document.body.textContent!.includes("All 1,234 hosts selected"), "the whole selection");
  await click(button("Tag…"));
  await until(
    () =>
      document.body.textContent!.includes(
        "2 agents are targets of the active rollout “web”, whose targets were fixed when it was started: it goes on with them.",
      ),
    "the warning",
  );
});

test("a refused query shows the server's mark", async () => {
  fleet();
  page.answers["/api/fleet/agents"] = refusal(400, "[request query.kuery]: Kuery is malformed: expected a value\nfoo:(\n    ^");
  await page.open("/agents?kuery=foo:(", "The query cannot be parsed: expected a value");
});
