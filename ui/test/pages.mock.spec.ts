// The pages in states that are hard to create with a real fleet: empty, large,
// mixed, refused. The mock fleet answers.
import { expect, test, type Page } from "@playwright/test";
import { expectAccessible, expectNoSidewaysScroll } from "./checks";
import { PORTS } from "./playwright.mock.config";

const at = (fleet: keyof typeof PORTS, path = "/") => `http://localhost:${PORTS[fleet]}${path}`;

async function open(page: Page, fleet: keyof typeof PORTS, path = "/agents"): Promise<void> {
  await page.context().addCookies([{ name: "muster_session", value: "mock", url: at(fleet) }]);
  await page.goto(at(fleet, path));
}

const rows = (page: Page) => page.getByRole("row").filter({ has: page.getByRole("rowheader") });

test("without a session the login page comes first and leads back", async ({ page }) => {
  await page.goto(at("twelve", "/agents?q=web&sort=version"));
  await expect(page).toHaveURL(/\/login\?from=/);
  await expectAccessible(page, "the login page");
  const key = page.getByLabel("Admin API key", { exact: true });
  await expect(page.getByRole("button", { name: "Log in" })).toBeDisabled();
  await key.fill("wrong");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("alert")).toContainText("This key is not accepted");
  await key.fill("bW9jazprZXk=");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(at("twelve", "/agents?q=web&sort=version"));
  await expect(rows(page)).toHaveCount(3);
});

test("packages of components are listed with component and runtime, and withdrawn", async ({ page }) => {
  await open(page, "twelve", "/packages");
  const web = page.getByRole("row", { name: /2\.4\.0/ });
  await expect(web.getByRole("cell", { name: "web", exact: true })).toBeVisible();
  await expect(web.getByRole("cell", { name: "systemd", exact: true })).toBeVisible();
  await web.getByRole("button", { name: "Withdraw muster-component-web-2.4.0-linux-amd64.tar.gz" }).click();
  const dialog = page.getByRole("dialog", { name: "Withdraw web 2.4.0 for linux · amd64?" });
  await dialog.getByRole("button", { name: "Withdraw package" }).click();
  await expect(web).toHaveCount(0);
});

test("a session that ends leads to the login page", async ({ page }) => {
  await open(page, "twelve", "/packages");
  await expect(page.getByRole("heading", { name: "Packages" })).toBeVisible();
  await page.context().clearCookies();
  await page.getByRole("navigation").getByRole("link", { name: "Enrollment" }).click();
  await expect(page).toHaveURL(/\/login\?from=%2Fenroll/);
});

test("a click on a status shows its agents, in the address", async ({ page }) => {
  await open(page, "twelve");
  await page.getByRole("button", { name: /Offline/ }).click();
  await expect(rows(page)).toHaveCount(1);
  await expect(page).toHaveURL(/status=/);
  await page.reload();
  await expect(rows(page)).toHaveCount(1);
  await page.goBack();
  await expect(rows(page)).toHaveCount(12);
});

test("only visible agents are upgraded, and the preview shows why others are not", async ({ page }) => {
  await open(page, "twelve");
  await page.getByRole("checkbox", { name: /^Select all 12/ }).check();
  await page.getByRole("textbox", { name: /^Filter by/ }).fill("build");
  await expect(rows(page)).toHaveCount(2);
  await page.getByRole("button", { name: "Upgrade 2 agents…" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog.getByText("1 agent will be upgraded; 1 will not")).toBeVisible();
  await expect(dialog.getByRole("listitem").first()).toContainText("It cannot be upgraded from here");
  await expect(dialog.getByRole("button", { name: "Upgrade 1 agent", exact: true })).toBeEnabled();
});

test("a query is in the address, survives a reload and back, and finds the matching agents", async ({ page }) => {
  await open(page, "twelve");
  const bar = page.getByRole("combobox", { name: "Search with KQL" });
  await expect(rows(page)).toHaveCount(12); // the key works once the page is there
  await page.keyboard.press("/");
  await expect(bar).toBeFocused();
  await page.keyboard.type("ta");
  const suggested = page.getByRole("listbox", { name: "Suggestions" });
  await expect(suggested.getByRole("option").first()).toContainText("what");
  await expect(suggested).not.toHaveAttribute("data-stale"); // a suggestion for an earlier text is not accepted
  await suggested.getByRole("option", { name: /tags/ }).click();
  await expect(bar).toHaveValue("tags");
  await page.keyboard.type(": sta");
  await expect(suggested.getByRole("option", { name: /stateful/ })).toBeVisible();
  await page.keyboard.press("ArrowDown");
  await expectAccessible(page, "suggestions");
  await page.emulateMedia({ colorScheme: "dark" });
  await expectAccessible(page, "suggestions in the dark");
  await page.keyboard.press("Tab");
  await expect(bar).toHaveValue("tags: stateful ");
  await page.keyboard.press("Escape");
  await expect(suggested).toBeHidden();
  await page.keyboard.press("Enter");
  await expect(rows(page)).toHaveCount(2);
  await expect(page.getByText("2 agents match", { exact: false }).first()).toBeVisible();
  await page.getByRole("button", { name: /Healthy/ }).click();
  await page.reload();
  await expect(bar).toHaveValue("tags: stateful");
  await expect(rows(page)).toHaveCount(2);
  await bar.fill("tags: nothing");
  await page.keyboard.press("Enter");
  await expect(page.getByText("No agent matches the query")).toBeVisible();
  await expectAccessible(page, "a query that finds nobody");
  await page.goBack();
  await expect(bar).toHaveValue("tags: stateful");
  await expect(rows(page)).toHaveCount(2);
  await page.getByRole("button", { name: "Clear the query" }).click();
  await expect(page).not.toHaveURL(/kuery/);
});

test("an invalid query shows its position, and the previous rows stay", async ({ page }) => {
  await open(page, "twelve", "/agents?kuery=tags%3A%20prod");
  await expect(rows(page)).toHaveCount(10);
  const bar = page.getByRole("combobox", { name: "Search with KQL" });
  await bar.fill("tags: prod and (");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Enter");
  const fault = page.getByRole("alert");
  await expect(fault).toContainText("The query cannot be parsed");
  await expect(fault.getByLabel("Where the query is wrong")).toHaveText("tags: prod and ( ^");
  await expect(page.getByTestId("answer")).toHaveAttribute("inert");
  await expect(page.getByTestId("answer").locator("tbody tr")).toHaveCount(10);
  await expectAccessible(page, "a wrong query");
  await page.emulateMedia({ colorScheme: "dark" });
  await expectAccessible(page, "a wrong query in the dark");
  await page.reload();
  await expect(fault).toContainText("The query cannot be parsed");
  await expect(bar).toHaveValue("tags: prod and (");
  await page.getByRole("button", { name: "Help on queries" }).click();
  const help = page.getByRole("dialog", { name: "Help on queries" });
  await expect(help.getByRole("listitem")).toHaveCount(6);
  await expectAccessible(page, "the help on queries");
  await help.getByRole("button", { name: /hostname\.keyword/ }).click();
  await expect(rows(page)).toHaveCount(3);
  await expect(fault).toBeHidden();
});

test("actions on all matching agents send the query of the list, with the count of the preview", async ({ page }) => {
  await open(page, "many", "/agents?kuery=" + encodeURIComponent("local_metadata.host.hostname.keyword: node-001*"));
  await expect(rows(page)).toHaveCount(100);
  await page.getByRole("checkbox", { name: /^Select all 100/ }).check();
  await page.getByRole("button", { name: "Select all 100 matching" }).click();
  const bar = page.getByRole("region", { name: "Selection" });
  await expect(bar).toContainText("All 100 matching");
  await expectAccessible(page, "a selection of all that match");
  await bar.getByRole("button", { name: "Roll back…" }).click();
  await expect(page.getByRole("dialog", { name: "Roll back all matching, 100 agents?" })).toContainText("node-001*");
  await page.keyboard.press("Escape");

  // The filters of the page are part of the query: only agents that are shown are selected.
  await page.getByRole("button", { name: /Healthy/ }).click();
  await expect(bar).toContainText("shown selected");
  const healthy = await page.getByRole("table").getAttribute("aria-rowcount").then((n) => Number(n) - 1);
  expect(healthy).toBeLessThan(100);
  await page.getByRole("checkbox", { name: `Select all ${healthy} agents shown` }).check();
  await bar.getByRole("button", { name: "Select all matching" }).click();
  await expect(bar).toContainText(`All ${healthy} matching`);
  await bar.getByRole("button", { name: "Upgrade…" }).click();
  const dialog = page.getByRole("dialog", { name: `Upgrade all matching, ${healthy} agents` });
  await expect(dialog.getByLabel("Query", { exact: true })).toHaveText("(local_metadata.host.hostname.keyword: node-001*) and status: (online)");
  await expect(dialog.getByText(`${healthy} agents will be upgraded`)).toBeVisible();
  await expectAccessible(page, "an upgrade of all that match");
  const sent = page.waitForRequest((r) => r.url().endsWith("/bulk_upgrade"));
  await dialog.getByRole("button", { name: `Upgrade ${healthy} agents` }).click();
  expect((await sent).postDataJSON()).toMatchObject({ agents: "(local_metadata.host.hostname.keyword: node-001*) and status: (online)", includeInactive: false });
});

test("without an agent that can be upgraded the button is disabled with a reason", async ({ page }) => {
  await open(page, "twelve", "/agents?q=build-01");
  await page.getByRole("checkbox", { name: "Select build-01" }).check();
  await page.getByRole("button", { name: "Upgrade 1 agent…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("combobox", { name: "Version" }).click();
  await page.getByRole("option", { name: "Another version…" }).click();
  await dialog.getByRole("textbox", { name: "Another version" }).fill("nine");
  await expect(dialog.getByRole("button", { name: /^Upgrade 1 agent$|^Upgrade 0/ })).toBeDisabled();
  await expect(dialog.getByText("“nine” is not a version. It has the form 1.2.3.").first()).toBeVisible();
  await dialog.getByRole("textbox", { name: "Another version" }).fill("9.9.9");
  await expect(dialog.getByText("No package 9.9.9 is published")).toBeVisible();
  await expect(dialog.getByText("None of these agents would be upgraded.").first()).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(dialog).toBeHidden();
  await expect(page.getByRole("button", { name: "Upgrade 1 agent…" })).toBeFocused();
});

test("a scheduled upgrade waits, and can be cancelled", async ({ page }) => {
  await open(page, "twelve", "/agents?q=web-03");
  await page.getByRole("button", { name: "Actions for web-03" }).click();
  await page.getByRole("menuitem", { name: /^Upgrade/ }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("button", { name: "Actions for web-03" })).toBeFocused();
  await page.getByRole("button", { name: "Actions for web-03" }).click();
  await page.getByRole("menuitem", { name: /^Upgrade/ }).click();
  await dialog.getByText("At a time").click();
  await expect(dialog.getByLabel("Start time")).toBeVisible();
  await dialog.getByRole("button", { name: "Schedule upgrade of 1 agent" }).click();
  await expect(rows(page).first()).toContainText(/Starts in (1 hr|5\d min|60 min)/);
  await page.getByRole("link", { name: "Follow it under Activity" }).click();
  const action = page.getByRole("listitem", { name: /is scheduled$/ });
  await action.getByRole("button", { name: "Cancel…" }).click();
  const confirm = page.getByRole("dialog", { name: "Cancel this upgrade?" });
  await expectAccessible(page, "the question before a cancel");
  await confirm.getByRole("button", { name: "Cancel upgrade" }).click();
  await expect(page.getByRole("listitem", { name: /was cancelled$/ })).toBeVisible();
});

test("an agent rolls back to its previous version, or shows why it cannot", async ({ page }) => {
  await open(page, "twelve", "/agents?q=db-01");
  await page.getByRole("link", { name: "db-01" }).click();
  const button = page.getByRole("button", { name: "Roll back…" });
  await expect(button).toBeDisabled();
  await expect(button).toHaveAccessibleDescription(/Upgrade rollback not available for agent/);

  await open(page, "twelve", "/agents?q=api-01");
  await page.getByRole("link", { name: "api-01" }).click();
  await expect(page.getByRole("definition").filter({ hasText: /^1\.0\.0, until / })).toBeVisible();
  await button.click();
  const dialog = page.getByRole("dialog", { name: "Roll back api-01?" });
  await expect(dialog.getByRole("listitem")).toContainText(/1\.1\.0\s*1\.0\.0/);
  await expect(dialog.getByRole("listitem")).toContainText("Possible until");
  await expectAccessible(page, "the question before a rollback");
  await page.keyboard.press("Escape");
  await expect(button).toBeFocused();
  await button.click();
  await dialog.getByRole("button", { name: "Roll back 1 agent to 1.0.0" }).click();
  await expect(page.getByText("The last rollback succeeded")).toBeVisible({ timeout: 30_000 });
  await expect(button).toBeDisabled();
  await page.getByRole("navigation").getByRole("link", { name: "Activity" }).click();
  await expect(page.getByRole("listitem", { name: "Rolled back 1 agent to 1.0.0" })).toBeVisible();
});

test("a version that is being watched is rolled back from the page that shows its watcher", async ({ page }) => {
  await open(page, "twelve", "/agents?q=db-01");
  await page.getByRole("button", { name: "Actions for db-01" }).click();
  await page.getByRole("menuitem", { name: /^Upgrade/ }).click();
  await page.getByRole("dialog").getByRole("combobox", { name: "Version" }).click();
  await page.getByRole("option", { name: "1.1.0" }).click();
  await page.getByRole("button", { name: "Upgrade 1 agent", exact: true }).click();
  await page.getByRole("link", { name: "db-01" }).click();
  await expect(page.getByRole("region", { name: "Watcher on the host" })).toContainText("running, healthy", { timeout: 30_000 });
  await page.getByRole("button", { name: "Roll back…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Roll back 1 agent to 1.0.0" }).click();
  await expect(page.getByText("The last rollback succeeded")).toBeVisible({ timeout: 30_000 });
});

test("many agents are rolled back, and those that cannot be show why", async ({ page }) => {
  await open(page, "twelve", "/agents?q=edge");
  await page.getByRole("checkbox", { name: /^Select all 2/ }).check();
  await page.getByRole("region", { name: "Selection" }).getByRole("button", { name: "Roll back…" }).click();
  const dialog = page.getByRole("dialog", { name: "Roll back 2 agents?" });
  await expect(dialog.getByText("No agent will be rolled back; 2 will not")).toBeVisible();
  await expect(dialog.getByRole("listitem").first()).toContainText("keeps no earlier version");
  const confirm = dialog.getByRole("button", { name: /^Roll back 0 agents/ });
  await expect(confirm).toBeDisabled();
  await expect(confirm).toHaveAccessibleDescription("None of these agents can be rolled back.");
  await expectAccessible(page, "a rollback nobody can do");
});

test("many agents are unenrolled only after a confirmation of their number", async ({ page }) => {
  await open(page, "twelve", "/agents?q=edge");
  await page.getByRole("checkbox", { name: /^Select all 2/ }).check();
  await page.getByRole("region", { name: "Selection" }).getByRole("button", { name: "Unenroll…" }).click();
  const dialog = page.getByRole("dialog", { name: "Unenroll 2 agents?" });
  await dialog.getByRole("checkbox", { name: "Revoke their keys at once" }).check();
  await expect(dialog.getByText("2 agents will be unenrolled")).toBeVisible();
  await expect(dialog.getByRole("button", { name: "Unenroll 2 agents" })).toBeEnabled();
  await dialog.getByRole("button", { name: "Keep" }).click();
  await expect(dialog).toBeHidden();
  await expect(rows(page)).toHaveCount(2);
});

test("a silent agent is explained by its watcher's last report", async ({ page }) => {
  await open(page, "twelve", "/agents?q=edge-fra-01");
  await page.getByRole("link", { name: "edge-fra-01" }).click();
  const panel = page.getByRole("region", { name: "Watcher on the host" });
  await expect(panel).toContainText("Rolled back, and silent since");
  await expect(panel).toContainText("not running; crashed 3 times");
  await expectAccessible(page, "what a watcher saw");
});

test("a retry is shown with its time and the error", async ({ page }) => {
  await open(page, "twelve", "/agents?q=cache-01");
  await page.getByRole("button", { name: "Actions for cache-01" }).click();
  await page.getByRole("menuitem", { name: /^Upgrade/ }).click();
  await page.getByRole("dialog").getByRole("combobox", { name: "Version" }).click();
  await page.getByRole("option", { name: "1.1.0" }).click();
  await page.getByRole("button", { name: "Upgrade 1 agent", exact: true }).click();
  await expect(rows(page).first()).toContainText(/Retry 1 of 6 at \d+:\d+/, { timeout: 30_000 });
  await expect(rows(page).first()).toContainText("No route to host.");
  await expect(rows(page).first()).toContainText("1.1.0", { timeout: 30_000 });
});

test("an empty fleet shows how to fill it", async ({ page }) => {
  await open(page, "none");
  await expect(page.getByText("No agent has enrolled yet")).toBeVisible();
  await expectAccessible(page, "an empty fleet");
  await page.getByRole("button", { name: "Add the first agent" }).click();
  const dialog = page.getByRole("dialog", { name: "Add an agent" });
  await dialog.getByRole("button", { name: "Create key and show command" }).click();
  const command = dialog.getByLabel("Command that enrols a host");
  await expect(command).toContainText("muster-agent install");
  for (const flag of ["--url", "--token", "--ca-pin", "--trust-key"]) await expect(command).toContainText(flag);
  await expectAccessible(page, "the command that enrols a host");
  const text = (await command.textContent()) ?? "";
  await dialog.getByRole("button", { name: "Done" }).click();
  await page.getByRole("navigation").getByRole("link", { name: "Enrollment" }).click();
  await page.getByRole("button", { name: /^Show the command of / }).click();
  const again = page.getByRole("dialog", { name: /^Enrol hosts with / });
  await expect(again.getByLabel("Command that enrols a host")).toHaveText(text);
  await expectAccessible(page, "the command of a key, shown again");
  await again.getByRole("button", { name: "Done" }).click();
  await page.getByRole("button", { name: /^Revoke / }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Revoke key" }).click();
  await expect(page.getByRole("button", { name: /^Show the command of / })).toHaveCount(0);
  await expect(page.getByRole("cell", { name: "Revoked" })).toBeVisible();
});

test("servers are listed, a server that is away is forgotten, and what is wrong stands above the agents", async ({ page }) => {
  const remark = "servers of several versions run: 1.4 on srv-2; 1.3 on srv-1. Upgrade the older ones: they leave alone what only newer servers know";
  await page.route("**/api/v1/servers", async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, json: { ...(await answer.json()), remarks: [remark] } });
  });
  await open(page, "twelve");
  await page.getByRole("link", { name: "All servers" }).click();
  await expect(page.getByRole("heading", { name: "Servers", level: 1 })).toBeVisible();
  await expect(page.getByText("Servers of several versions run", { exact: false })).toBeVisible();
  await expectAccessible(page, "the servers");
  await expectNoSidewaysScroll(page);
  await expect(rows(page)).toHaveCount(2);
  await page.getByRole("button", { name: "Forget srv-2" }).click();
  await expectAccessible(page, "the dialog that forgets a server");
  await page.getByRole("dialog").getByRole("button", { name: "Forget server" }).click();
  await expect(rows(page)).toHaveCount(1);
  await page.getByRole("button", { name: /^Account/ }).click();
  await expect(page.getByRole("menuitem", { name: "Servers" })).toBeVisible();
});

test("admin keys are created, rotated and revoked", async ({ page }) => {
  await open(page, "twelve");
  await page.getByRole("button", { name: /^Account/ }).click();
  await page.getByRole("menuitem", { name: "Admin keys" }).click();
  await expect(page.getByRole("heading", { name: "Admin keys", level: 1 })).toBeVisible();
  await expect(page.getByRole("rowheader", { name: "first admin key (yours)" })).toBeVisible();
  await page.getByRole("button", { name: "Revoke first admin key" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Revoke key" }).click();
  await expect(page.getByRole("alert")).toContainText("would lock everybody out");
  await page.getByRole("dialog").getByRole("button", { name: "Keep" }).click();

  await page.getByRole("button", { name: "Create key…" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog.getByRole("button", { name: "Create key" })).toBeDisabled();
  await dialog.getByLabel("Name").fill("ci");
  await expectAccessible(page, "the dialog that creates an admin key");
  await dialog.getByRole("button", { name: "Create key" }).click();
  const secret = await dialog.getByLabel("Admin key").textContent();
  await dialog.getByRole("button", { name: "Done" }).click();
  const ci = rows(page).filter({ hasText: "ci" });
  await expect(ci).toContainText("Active");
  await expect(ci).toContainText("never");

  await page.getByRole("button", { name: "Rotate ci" }).click();
  await dialog.getByRole("button", { name: "Rotate key" }).click();
  await expect(dialog.getByLabel("Admin key")).not.toHaveText(secret!);
  await dialog.getByRole("button", { name: "Done" }).click();
  await expect(page.getByRole("cell", { name: "Revoked" })).toHaveCount(1);
  await page.getByRole("button", { name: "Revoke ci" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Revoke key" }).click();
  await expect(page.getByRole("cell", { name: "Revoked" })).toHaveCount(2);
  await expectAccessible(page, "the admin keys");
  await page.setViewportSize({ width: 400, height: 800 });
  await expectNoSidewaysScroll(page);
});

test("five thousand agents scroll, filter and sort, with few rows in the document", async ({ page }) => {
  await open(page, "many");
  await expect(rows(page).first()).toBeVisible();
  await expect(page.getByRole("table")).toHaveAttribute("aria-rowcount", "5001");
  expect(await rows(page).count()).toBeLessThan(80);
  await page.getByRole("button", { name: "Host" }).click();
  await expect(rows(page).first()).toContainText("web-03");
  await page.evaluate(() => window.scrollTo(0, document.documentElement.scrollHeight));
  await expect(rows(page).last()).toContainText("api-01");
  await page.getByRole("textbox", { name: /^Filter by/ }).fill("node-0499");
  await expect(rows(page)).toHaveCount(10);
});

test("the keyboard reaches everything", async ({ page }) => {
  await open(page, "twelve");
  await expect(rows(page).first()).toBeVisible();
  await page.keyboard.press("Tab");
  await expect(page.getByRole("link", { name: "Skip to the content" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("main")).toBeFocused();
  await page.getByRole("checkbox", { name: "Select api-01" }).focus();
  await page.keyboard.press("Space");
  await page.keyboard.press("Tab");
  await expect(page.getByRole("link", { name: "api-01" })).toBeFocused();
  await page.keyboard.press("Tab");
  await expect(page.getByRole("button", { name: "Actions for api-01" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("menuitem", { name: /^Upgrade/ })).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("button", { name: "Actions for api-01" })).toBeFocused();
});

test("every page fits a telephone", async ({ page }) => {
  await page.setViewportSize({ width: 400, height: 800 });
  await open(page, "twelve");
  await expect(rows(page)).toHaveCount(12);
  await expectNoSidewaysScroll(page);
  await expectAccessible(page, "the agents on a telephone");
  for (const name of ["Components", "Rollouts", "Groups", "Activity", "Policies", "Packages", "Enrollment"]) {
    await page.getByRole("navigation").getByRole("link", { name }).click();
    await expect(page.getByRole("heading", { name, level: 1 })).toBeVisible();
    await expectNoSidewaysScroll(page);
  }
  await page.getByRole("navigation").getByRole("link", { name: "Agents" }).click();
  await page.getByRole("link", { name: "web-01" }).click();
  await expect(page.getByRole("heading", { name: "web-01" })).toBeVisible();
  await expectNoSidewaysScroll(page);
});

test("the chosen colours stay, and log out ends the session", async ({ page }) => {
  await open(page, "twelve");
  await page.getByRole("button", { name: /^Colours/ }).click();
  await page.getByRole("menuitem", { name: "Dark" }).click();
  await expect(page.locator("html")).toHaveAttribute("data-mantine-color-scheme", "dark");
  await page.reload();
  await expect(page.locator("html")).toHaveAttribute("data-mantine-color-scheme", "dark");
  await page.getByRole("button", { name: /^Account/ }).click();
  await page.getByRole("menuitem", { name: "Log out" }).click();
  await expect(page).toHaveURL(/\/login$/);
  await page.goto(at("twelve", "/agents"));
  await expect(page).toHaveURL(/\/login\?from=/);
});

test("an unknown agent is reported", async ({ page }) => {
  await open(page, "twelve", "/agents/nobody");
  await expect(page.getByText("There is no such agent")).toBeVisible();
  await open(page, "twelve", "/nowhere");
  await expect(page.getByText("There is no such page")).toBeVisible();
});

test("groups are listed, and the board of one has its members in order and its commands", async ({ page }) => {
  await open(page, "twelve", "/groups");
  await expect(page.getByRole("list", { name: "Groups" }).getByRole("listitem")).toHaveCount(2);
  await expectAccessible(page, "groups");
  await page.getByRole("link", { name: "Autumn release" }).click();
  const members = page.getByRole("list", { name: "Members in order" }).getByRole("listitem");
  await expect(members).toHaveCount(3);
  await expect(members.first()).toContainText("1. db to 1.1.0");
  await expect(page.getByRole("alert")).toContainText("A member failed: web");
  await expectAccessible(page, "a group");
  await expectNoSidewaysScroll(page);
  await page.getByRole("button", { name: "Leave a member out…" }).click();
  const dialog = page.getByRole("dialog", { name: "Leave a member out?" });
  await expectAccessible(page, "leaving a member out");
  await expect(dialog.getByRole("button", { name: "Leave it out" })).toHaveAttribute("aria-disabled", "true");
  await dialog.getByLabel("Reason").fill("broken disk");
  await dialog.getByRole("button", { name: "Leave it out" }).click();
  await expect(members.nth(1)).toContainText("Left out");
  await expect(page.getByRole("alert")).toHaveCount(0);
});

test("a group is created from a plan, with errors at their members, and its draft is started as previewed", async ({ page }) => {
  await open(page, "rollouts", "/groups");
  await page.getByRole("link", { name: "New group…" }).click();
  const editor = page.getByLabel("Plan in YAML");
  await expect(editor).toHaveValue(/failure_policy: rollback_all/);
  const create = page.getByRole("button", { name: "Create draft…" });
  const plan = (policy: string, select: string) => `name: Winter release\n${policy}\ndesired_versions: { web: 1.1.0, db: 1.1.0 }\nmembers:\n  - name: web\n    plan: { select: { labels: { site: [web] } }, strategy: { kind: rolling } }\n  - name: db\n    plan:\n      ${select}\n      strategy: { kind: rolling }\n`;
  await editor.fill(plan("", "select: { labels: { site: [db] } }"));
  await expect(page.getByRole("alert")).toContainText("failure_policy is missing");
  await expect(create).toHaveAccessibleDescription("The plan has 1 error, listed below it.");
  await editor.fill(plan("failure_policy: manual", "# nobody"));
  await create.click();
  await expect(page.getByRole("alert")).toContainText("members[1].plan.select");
  await page.getByRole("button", { name: "Line 8" }).click();
  await expect(editor).toBeFocused();
  await expectAccessible(page, "the plan of a group with an error");
  await expectNoSidewaysScroll(page);
  await editor.fill(plan("failure_policy: manual", "select: { labels: { site: [db] } }"));
  await create.click();
  await expect(page.getByRole("heading", { name: "Winter release", level: 1 })).toBeVisible();
  await expectAccessible(page, "the draft of a group");
  await page.getByRole("button", { name: "Start on 5 agents in 2 members…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Start the group" }).click();
  await expect(page.getByTitle("State: running").first()).toBeVisible();
});

test("without groups the page says how to create one", async ({ page }) => {
  await open(page, "none", "/groups");
  await expect(page.getByText("muster groups create --file group.yaml")).toBeVisible();
  await expectAccessible(page, "no groups");
});

test("components are listed, and lead to the agents that run them", async ({ page }) => {
  await open(page, "three", "/components");
  await expect(rows(page)).toHaveCount(1);
  await expect(rows(page).first()).toContainText("2.4.0 (3)");
  await expectAccessible(page, "components");
  await page.emulateMedia({ colorScheme: "dark" });
  await expectAccessible(page, "components in the dark", ["color-contrast"]);
  await page.getByRole("link", { name: "web-server" }).click();
  await expect(page.getByRole("combobox", { name: "Search with KQL" })).toHaveValue("components.name: web-server");
  await expect(rows(page)).toHaveCount(3);
});

test("a component is upgraded on its agent, phase by phase, and goes back", async ({ page }) => {
  await open(page, "three", "/agents?q=web-01");
  await page.getByRole("link", { name: "web-01" }).click();
  const component = page.getByRole("list", { name: "Components" }).getByRole("listitem", { name: "web-server" });
  await expect(component).toContainText("runs 2.4.0");
  await component.getByRole("button", { name: "Upgrade web-server" }).click();
  const dialog = page.getByRole("dialog", { name: "Upgrade web-server on web-01" });
  await dialog.getByRole("combobox", { name: "Version" }).click();
  await page.getByRole("option", { name: "2.5.0" }).click();
  await expect(dialog.getByText("1 agent will be upgraded")).toBeVisible();
  await expectAccessible(page, "the upgrade of a component");
  await dialog.getByRole("button", { name: "Upgrade web-server on 1 agent" }).click();
  await expect(component).toContainText("PREPARING");
  await expect(component.getByRole("button", { name: "Upgrade web-server" })).toHaveAccessibleDescription("It is being upgraded to 2.5.0.");
  await expect(component).toContainText("VERIFYING");
  await expect(component).toContainText("runs 2.5.0");
  await component.getByRole("button", { name: "Roll back web-server" }).click();
  const back = page.getByRole("dialog", { name: "Roll back web-server on web-01" });
  await back.getByRole("combobox", { name: "Version" }).click();
  await page.getByRole("option", { name: "2.3.0" }).click();
  await expect(back.getByText("1 agent will be rolled back")).toBeVisible();
  await back.getByRole("button", { name: "Roll back web-server on 1 agent" }).click();
  await expect(component).toContainText("runs 2.3.0");
  await expectAccessible(page, "an agent with components");
});

test("a version of a component that fails is put back, with its reason", async ({ page }) => {
  await open(page, "three", "/agents?q=web-02");
  await page.getByRole("link", { name: "web-02" }).click();
  const component = page.getByRole("list", { name: "Components" }).getByRole("listitem", { name: "web-server" });
  await component.getByRole("button", { name: "Upgrade web-server" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Upgrade web-server on 1 agent" }).click();
  await expect(component).toContainText("Rolling back");
  await expect(component).toContainText("Rolled back from 2.6.0");
  await expect(component).toContainText("check answers fails: 503");
  await expect(component).toContainText("runs 2.4.0");
  await expectAccessible(page, "a component that was rolled back");
});

test("policies show their components, and the command that changes them", async ({ page }) => {
  await open(page, "twelve", "/policies");
  const edge = page.getByRole("region", { name: "Components of Edge sites" });
  await expect(edge.getByRole("row", { name: /cache/ })).toContainText("docker");
  await expect(page.getByText("muster policies update default --components components.yaml")).toBeVisible();
  await expectAccessible(page, "policies");
  await page.getByRole("link", { name: "2 agents" }).click();
  await expect(rows(page)).toHaveCount(2);
});
