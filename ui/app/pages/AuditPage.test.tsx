import { expect, test, vi } from "vitest";
import { button, click, pages, until } from "~/testing/page";

vi.setConfig({ testTimeout: 20_000 });

const page = pages();

test("a change of a policy opens to what it was before", async () => {
  const entry = (id: string, verb: string, data: Record<string, unknown>) => ({
    id,
    at: "2026-01-02T10:00:00Z",
    actor: "ann",
    verb,
    subject: "web",
    text: `ann changed the policy Web ${id}`,
    data,
  });
  page.answers["/api/v1/audit"] = {
    items: [entry("2", "policy.update", { revision: 2 }), entry("1", "policy.create", { revision: 1 })],
    total: 2,
    page: 1,
    perPage: 50,
  };
  page.answers["/api/v1/rollouts"] = { items: [], total: 0, page: 1, perPage: 200 };
  await page.open("/audit?verb=policy", "Changed the policy Web 2.");
  await click(button("Details of Changed the policy Web 2."));
  await until(() => document.querySelector("table[aria-label='What changed']") !== null, "the change");
  expect(document.querySelector("table[aria-label='What changed'] tbody")!.textContent).toBe("revision12");
});
