// A component of a real agent, on the agent's page: it is installed, upgraded and taken
// back, and a version that ends at once is rolled back. Each time the component's own web
// page, fetched once, must show the version that the agent's page shows.
import { expect, type Locator, type Page, test } from "@playwright/test";
import { expectAccessible, watchComplaints } from "./checks";
import { choose, go, hostsOn, need, openHost, rowsOf, shot, UPGRADE_MS } from "./real";

const login = need("MUSTER_UI_LOGIN");
const served = need("MUSTER_UI_PAGE");
const [first, next, bad] = need("MUSTER_UI_PAGE_VERSIONS").split(" ") as [string, string, string];

test.describe.configure({ mode: "serial" });

let page: Page;
let complaints: string[];
let host: string;
let component: Locator;

test.beforeAll(async ({ browser }) => {
  page = await (await browser.newContext({ colorScheme: "light" })).newPage();
  complaints = watchComplaints(page);
  await page.goto(login);
  await go(page, "Agents");
  await expect(rowsOf(page).first()).toBeVisible();
  // The last one: the first may be unenrolled by another spec.
  host = (await hostsOn(page)).at(-1)!;
  await openHost(page, host);
  component = page.getByRole("table", { name: "Components" }).getByRole("row", { name: "page", exact: true });
});

test.afterEach(() => {
  expect(complaints, "errors and Content-Security-Policy reports of the browser").toEqual([]);
});

test("a component of the policy is installed", async () => {
  await expect(component).toContainText("not installed");
  await order("Install…", first);
  await runs(first);
});

test("a version is staged while another one runs", async () => {
  await (await menu("Upgrade…")).click();
  const dialog = page.getByRole("dialog", { name: `Upgrade page on ${host}` });
  await choose(page, dialog, next);
  await dialog.getByText("Stage only").click();
  const staging = page.getByRole("dialog", { name: `Stage page ${next} on ${host}?`, exact: true });
  await expect(staging.getByRole("region", { name: "Preview" })).toContainText("The host will stage it");
  await expectAccessible(page, "the dialog that stages a version");
  await shot(page, "stage-dialog");
  await staging.getByRole("button", { name: `Stage on ${host}`, exact: true }).click();
  await expect(staging).toBeHidden();
  await expect(staged()).toHaveText(`page ${next}`, { timeout: UPGRADE_MS });
  await shot(page, "staged");
  await runs(first);
});

test("a component is upgraded, with its phase on the page, and serves the new version", async () => {
  await order("Upgrade…", next);
  // The phase that lasts: the seconds that the policy says.
  await expect(component).toContainText("Watching", { timeout: UPGRADE_MS });
  await expect(await menu("Upgrade…")).toContainText(`It is already being upgraded to ${next}: wait, or cancel that.`);
  await shot(page, "component-upgrading");
  await page.keyboard.press("Escape");
  await runs(next);
  await expect(staged()).toHaveText("none");
  await shot(page, "component-upgraded");
});

test("a component is taken back to the version before", async () => {
  await order("Roll back…", first);
  await runs(first);
});

test("a version that ends at once is rolled back, and the page says why", async () => {
  await order("Upgrade…", bad);
  await expect(component).toContainText("Rolled back", { timeout: UPGRADE_MS });
  await expect(component).toContainText(bad);
  await expect(component).toContainText(/crash loop: it was restarted .* exit status 1; its last output: "page: cannot serve/i);
  await runs(first);
  const entry = page.getByRole("listitem").filter({ has: page.getByRole("button", { name: `Upgrade of page to ${bad}` }) });
  await expect(entry).toContainText(`Rolled back to ${first}`);
  await expectAccessible(page, "a component that was rolled back");
  await shot(page, "component-rolled-back");
});

test("activity and the components lead to the hosts that run a version", async () => {
  await go(page, "Activity");
  const failed = page.getByRole("row").filter({ hasText: `Upgrade of page to ${bad}` });
  await expect(failed).toContainText("1 rolled back");
  await failed.getByRole("button", { name: /^Details of/ }).click();
  await expect(page.getByRole("region", { name: "Newest errors" })).toContainText(/crash loop/i);
  await expect(page.getByRole("row").filter({ hasText: `Rollback of page to ${first}` })).toContainText("1 committed");

  await go(page, "Agents");
  await page.getByRole("navigation", { name: "Hosts and components" }).getByRole("link", { name: "Components" }).click();
  await page.getByRole("table", { name: "Components" }).getByRole("row").filter({ hasText: "page" }).getByRole("link", { name: first, exact: true }).click();
  await expect.poll(() => hostsOn(page)).toEqual([host]);
});

/** What the agent's page says is staged. */
const staged = () => page.locator("dt", { hasText: /^Staged$/ }).locator("xpath=following-sibling::dd[1]");

/** Opens the commands of the component, and returns one of them. */
async function menu(word: string): Promise<Locator> {
  await component.getByRole("button", { name: "Commands for page" }).click();
  return page.getByRole("menuitem", { name: word });
}

/** Gives a command of the component, chooses a version in its dialog, and confirms it. */
async function order(word: string, version: string): Promise<void> {
  await (await menu(word)).click();
  const verb = word.startsWith("Roll back") ? "Roll back" : "Upgrade";
  const dialog = page.getByRole("dialog", { name: `${verb} page on ${host}` });
  await choose(page, dialog, version);
  await expect(page.getByRole("dialog", { name: `${verb} page on ${host} to ${version}?`, exact: true })).toBeVisible();
  await expect(dialog.getByRole("region", { name: "Preview" })).toContainText(`The host will be ${verb === "Upgrade" ? "upgraded" : "rolled back"}`);
  await dialog.getByRole("button", { name: `${verb} page on ${host}`, exact: true }).click();
  await expect(dialog).toBeHidden();
}

/** The component runs a version, which is healthy, and nothing is under way; and it serves that version. */
async function runs(version: string): Promise<void> {
  await expect(component.getByRole("cell").nth(1)).toHaveText(
    new RegExp(`^${version.replaceAll(".", "\\.")}(?!.*(wants|Sent|Accepted|Downloading|Installing|Restarting|Watching))`, "s"),
    { timeout: UPGRADE_MS },
  );
  await expect(component).toContainText("Healthy");
  await expect(await menu("Upgrade…")).not.toContainText("Not possible now");
  await page.keyboard.press("Escape");
  const answer = await page.request.get(served);
  expect(await answer.text()).toBe(`page ${version}\n`);
}
