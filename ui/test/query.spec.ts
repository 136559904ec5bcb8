// Hosts are found with KQL and upgraded by the query, against a real server: a
// suggestion is accepted, the list narrows, an invalid query shows its position, and exactly
// the matching hosts are upgraded; the others are unenrolled by a query. It must be possible to upgrade the hosts whose
// names start with web- to the version, and they must be neither all hosts nor one.
import { expect, test } from "@playwright/test";
import { expectAccessible, watchComplaints } from "./checks";
import { choose, go, hosts, hostsOn, need, rowOf, rowsOf, shot, UPGRADE_MS, versionCell } from "./real";

const login = need("MUSTER_UI_LOGIN");
const version = need("MUSTER_UI_QUERY");

test("a query is completed, narrows the list, shows its errors, and upgrades and unenrols all matching hosts", async ({ page }) => {
  const complaints = watchComplaints(page);
  const rows = rowsOf(page);
  const bar = page.getByRole("combobox", { name: "Search hosts" });
  await page.goto(login);
  await go(page, "Agents");
  await expect(rows.first()).toBeVisible();
  const names = await hostsOn(page);
  const web = names.filter((h) => h.startsWith("web-"));
  const others = names.filter((h) => !web.includes(h));
  expect(web.length).toBeGreaterThan(1);
  expect(others.length).toBeGreaterThan(0);

  await page.keyboard.press("/");
  await expect(bar).toBeFocused();
  await page.keyboard.type("hostname.key");
  const suggested = page.getByRole("listbox", { name: "Suggestions" });
  await expect(suggested.getByRole("option", { name: /hostname\.keyword/ })).toBeVisible();
  await page.keyboard.press("ArrowDown");
  await expectAccessible(page, "the suggestions");
  await shot(page, "query-suggestions");
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
  await expect(page.getByText(`${hosts(web.length)} match`)).toBeVisible();

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
  await shot(page, "query-wrong");
  await page.goBack();
  await expect(fault).toBeHidden();
  await expect(bar).toHaveValue(query);
  await expect(rows).toHaveCount(web.length);

  const orders = page.getByRole("region", { name: "Orders for the selected hosts" });
  await expect(orders).toContainText("No host is selected");
  await orders.getByRole("button", { name: `Select all ${web.length} that match` }).click();
  await expect(orders).toContainText(`All ${hosts(web.length)} selected`);
  await orders.getByRole("button", { name: "Upgrade…" }).click();
  const dialog = page.getByRole("dialog", { name: `Upgrade ${hosts(web.length)}` });
  await choose(page, dialog, version);
  await expect(page.getByRole("dialog", { name: `Upgrade ${hosts(web.length)} to ${version}?`, exact: true })).toBeVisible();
  await expect(dialog.getByRole("region", { name: "Preview" })).toContainText(`All ${hosts(web.length)} will be upgraded`);
  await shot(page, "query-upgrade");
  const sent = page.waitForRequest((r) => r.url().endsWith("/api/fleet/agents/bulk_upgrade"));
  await dialog.getByRole("button", { name: `Upgrade ${hosts(web.length)}`, exact: true }).click();
  expect((await sent).postDataJSON()).toMatchObject({ agents: query, version, includeInactive: false });
  await expect(dialog).toBeHidden();

  await page.getByRole("button", { name: "Clear the query" }).click();
  await expect(rows).toHaveCount(names.length);
  for (const host of web) {
    await expect(rowOf(page, host).filter({ has: versionCell(page, version) }), host).toContainText("Committed", { timeout: UPGRADE_MS });
  }
  for (const host of others) await expect(rowOf(page, host)).not.toContainText(version);

  // The hosts that were not upgraded are unenrolled, by a query as well.
  const left = `not agent.version: ${version}`;
  await bar.fill(left);
  await page.keyboard.press("Escape");
  await page.keyboard.press("Enter");
  await expect(rows).toHaveCount(others.length);
  await orders.getByRole("button", { name: `Select all ${others.length} that match` }).click();
  await expect(orders).toContainText(`${others.length === 1 ? "The one host" : `All ${hosts(others.length)}`} selected`);
  await orders.getByRole("button", { name: "More" }).click();
  await page.getByRole("menuitem", { name: "Unenrol…" }).click();
  const leaving = page.getByRole("dialog", { name: `Unenrol ${hosts(others.length)}?`, exact: true });
  await expect(leaving.getByRole("region", { name: "Preview" })).toContainText(
    others.length === 1 ? "The host will be unenrolled" : `All ${hosts(others.length)} will be unenrolled`,
  );
  await expectAccessible(page, "the unenrolment of all that match");
  await shot(page, "query-unenroll");
  const asked = page.waitForRequest((r) => r.url().endsWith("/api/fleet/agents/bulk_unenroll"));
  await leaving.getByRole("button", { name: `Unenrol ${hosts(others.length)}`, exact: true }).click();
  expect((await asked).postDataJSON()).toMatchObject({ agents: left, revoke: false, force: false, includeInactive: false });
  await expect(leaving).toBeHidden();
  // They are asked, and acknowledge.
  await page.getByRole("button", { name: "Clear the query" }).click();
  await expect(rows).toHaveCount(web.length);
  await expect(rowOf(page, web[0]!)).toBeVisible();
  expect(complaints, "errors and Content-Security-Policy reports of the browser").toEqual([]);
});
