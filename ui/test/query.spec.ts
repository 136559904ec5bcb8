// Agents are found with KQL and upgraded by the query, against a real server: a
// suggestion is accepted, the list narrows, an invalid query shows its position, and exactly
// the matching agents are upgraded; the others are unenrolled by a query. It must be possible to upgrade the hosts whose
// names start with web- to the version, and they must be neither all hosts nor one.
import { expect, test } from "@playwright/test";
import { expectAccessible, watchComplaints } from "./checks";

const login = need("MUSTER_UI_LOGIN");
const version = need("MUSTER_UI_QUERY");
const artifacts = process.env.MUSTER_UI_ARTIFACTS ?? "test-results/screenshots";

/** A download, a restart and a watch of some seconds, on a slow machine. */
const UPGRADE_MS = 240_000;

test("a query is completed, narrows the list, shows its errors, and upgrades and unenrols all matching agents", async ({ page }) => {
  const complaints = watchComplaints(page);
  const shot = (name: string) => page.screenshot({ path: `${artifacts}/${name}.png` });
  const rows = page.getByRole("row").filter({ has: page.getByRole("rowheader") });
  const bar = page.getByRole("combobox", { name: "Search with KQL" });
  await page.goto(login);
  await expect(rows.first()).toBeVisible();
  const hosts = await rows.getByRole("rowheader").getByRole("link").allInnerTexts();
  const web = hosts.filter((h) => h.startsWith("web-"));
  expect(web.length).toBeGreaterThan(1);
  expect(web.length).toBeLessThan(hosts.length);

  await page.keyboard.press("/");
  await expect(bar).toBeFocused();
  await page.keyboard.type("hostname.key");
  const suggested = page.getByRole("listbox", { name: "Suggestions" });
  await expect(suggested.getByRole("option", { name: /hostname\.keyword/ })).toBeVisible();
  await page.keyboard.press("ArrowDown");
  await expectAccessible(page, "the suggestions");
  await shot("query-suggestions");
  await page.keyboard.press("Enter");
  await expect(bar).toHaveValue("local_metadata.host.hostname.keyword");
  await page.keyboard.type(": ");
  await expect(suggested.getByRole("option", { name: new RegExp(web[0]!) })).toBeVisible();
  await page.keyboard.type("web-*");
  await page.keyboard.press("Enter");
  await expect(rows).toHaveCount(web.length);
  await expect(page).toHaveURL(/kuery=/);
  await page.reload();
  await expect(rows).toHaveCount(web.length);

  const query = "local_metadata.host.hostname.keyword: web-*";
  await expect(bar).toHaveValue(query);
  await bar.fill(`${query} and (`);
  await page.keyboard.press("Escape");
  await page.keyboard.press("Enter");
  const fault = page.getByRole("alert");
  await expect(fault).toContainText("The query cannot be parsed");
  await expect(fault.getByLabel("Where the query is wrong")).toHaveText(/\^$/);
  await expect(rows).toHaveCount(web.length);
  await expectAccessible(page, "a query that is wrong");
  await shot("query-wrong");
  await page.goBack();
  await expect(fault).toBeHidden();
  await expect(bar).toHaveValue(query);
  await expect(rows).toHaveCount(web.length);

  await page.getByRole("checkbox", { name: `Select all ${web.length} agents shown` }).check();
  await page.getByRole("button", { name: `Select all ${web.length} matching` }).click();
  const bottom = page.getByRole("region", { name: "Selection" });
  await expect(bottom).toContainText(`All ${web.length} matching`);
  await bottom.getByRole("button", { name: "Upgrade…" }).click();
  const dialog = page.getByRole("dialog", { name: /^Upgrade all matching/ });
  await dialog.getByRole("combobox", { name: "Version" }).click();
  await page.getByRole("option", { name: new RegExp(`^${version.replaceAll(".", "\\.")}( \\(newest\\))?$`) }).click();
  await expect(dialog.getByLabel("Query", { exact: true })).toHaveText(query);
  await expect(dialog.getByText(`${web.length} agents will be upgraded`)).toBeVisible();
  await shot("query-upgrade");
  const sent = page.waitForRequest((r) => r.url().endsWith("/api/fleet/agents/bulk_upgrade"));
  await dialog.getByRole("button", { name: `Upgrade ${web.length} agents`, exact: true }).click();
  expect((await sent).postDataJSON()).toMatchObject({ agents: query, version, includeInactive: false });
  await expect(dialog).toBeHidden();

  await page.getByRole("button", { name: "Clear the query" }).click();
  await expect(rows).toHaveCount(hosts.length);
  const row = (host: string) => rows.filter({ has: page.getByRole("link", { name: host, exact: true }) });
  for (const host of web) {
    await expect(row(host).getByRole("cell", { name: new RegExp(`^${version.replaceAll(".", "\\.")}$`) }), host).toBeVisible({ timeout: UPGRADE_MS });
  }
  const others = hosts.filter((h) => !web.includes(h));
  for (const host of others) await expect(row(host)).toContainText(`${version} available`);

  // The agents that were not upgraded are unenrolled, by a query as well.
  const left = `not agent.version: ${version}`;
  await bar.fill(left);
  await page.keyboard.press("Escape");
  await page.keyboard.press("Enter");
  await expect(rows).toHaveCount(others.length);
  await page.getByRole("checkbox", { name: /^Select all .* shown$/ }).check();
  await page.getByRole("button", { name: `Select all ${others.length} matching` }).click();
  await expect(bottom).toContainText(`All ${others.length} matching`);
  await bottom.getByRole("button", { name: "Unenroll…" }).click();
  const agents = others.length === 1 ? "1 agent" : `${others.length} agents`;
  const leaving = page.getByRole("dialog", { name: `Unenroll all matching, ${agents}?` });
  await expect(leaving.getByLabel("Query", { exact: true })).toHaveText(left);
  await expect(leaving.getByText(`${agents} will be unenrolled`)).toBeVisible();
  await expectAccessible(page, "the unenrolment of all that match");
  await shot("query-unenroll");
  const asked = page.waitForRequest((r) => r.url().endsWith("/api/fleet/agents/bulk_unenroll"));
  await leaving.getByRole("button", { name: `Unenroll ${agents}`, exact: true }).click();
  expect((await asked).postDataJSON()).toMatchObject({ agents: left, revoke: false, force: false, includeInactive: false });
  await expect(leaving).toBeHidden();
  // They are asked, and acknowledge.
  await page.getByRole("button", { name: "Clear the query" }).click();
  await expect(rows).toHaveCount(web.length);
  await expect(row(web[0]!)).toBeVisible();
  expect(complaints, "errors and Content-Security-Policy reports of the browser").toEqual([]);
});

function need(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`Set ${name}; what it means stands in test/playwright.config.ts`);
  return value;
}
