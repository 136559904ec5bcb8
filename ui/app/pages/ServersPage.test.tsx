import { expect, test } from "vitest";
import { button, click, pages, until } from "~/testing/page";

const page = pages();

const server = (id: string, host: string, version: string, away: boolean) => ({
  id,
  host,
  version,
  schema: 10,
  started_at: "2026-03-03T10:00:00Z",
  seen_at: "2026-03-03T10:00:00Z",
  away,
  agents_url: `https://${host}:8220`,
  admin_url: `https://${host}:8221`,
  parked: 1200,
});

test("servers are listed, and one that is away can be forgotten", async () => {
  page.answers["/api/v1/servers"] = {
    items: [server("a", "srv-1", "1.4.0", false), server("b", "srv-2", "1.3.0", true)],
    remarks: ["servers of several versions run: 1.4 on b; 1.3 on a"],
  };
  page.answers["/api/v1/servers/b"] = { action: "deleted" };
  await page.open("/servers", "srv-2");
  const rows = [...document.querySelectorAll("tbody tr")].map((row) => [...row.children].map((c) => c.textContent));
  expect(rows[0]!.slice(0, 4)).toEqual(["srv-1a", "Running", "1.4.0", "1,200"]);
  expect(rows[1]![1]).toMatch(/^Away, seen /);
  expect(rows[1]![3]).toBe("–");
  expect(document.body.textContent).toContain("Servers of several versions run: 1.4 on b; 1.3 on a.");
  expect(button("Forget srv-1")).toBeUndefined();
  await click(button("Forget srv-2"));
  await click(button("Forget server"));
  await until(() => page.sent.some((s) => s.path === "/api/v1/servers/b"), "the server is forgotten");
});
