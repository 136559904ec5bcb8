// A component of a real agent, on the agent's page: it is installed, upgraded and taken
// back, and a version that ends at once is rolled back. Each time the component's own web
// page, fetched once, must show the version that the agent's page shows.
import { expect, test, type Locator, type Page } from "@playwright/test";
import { expectAccessible, watchComplaints } from "./checks";

const login = need("MUSTER_UI_LOGIN");
const served = need("MUSTER_UI_PAGE");
const [first, next, bad] = need("MUSTER_UI_PAGE_VERSIONS").split(" ") as [string, string, string];
const artifacts = process.env.MUSTER_UI_ARTIFACTS ?? "test-results/screenshots";

/** A download, a start and an observation of some seconds, twice if it is undone, on a slow machine. */
const UPGRADE_MS = 120_000;

test.describe.configure({ mode: "serial" });

let page: Page;
let complaints: string[];
let host: string;
let component: Locator;

test.beforeAll(async ({ browser }) => {
  page = await (await browser.newContext({ colorScheme: "light" })).newPage();
  complaints = watchComplaints(page);
  await page.goto(login);
  // The last one: the first may be unenrolled by another spec.
  const link = page.getByRole("row").getByRole("rowheader").getByRole("link").last();
  host = await link.innerText();
  await link.click();
  await expect(page.getByRole("heading", { name: host, level: 1 })).toBeVisible();
  component = page.getByRole("list", { name: "Components" }).getByRole("listitem", { name: "page", exact: true });
});

test.afterEach(() => {
  expect(complaints, "errors and Content-Security-Policy reports of the browser").toEqual([]);
});

test("a component of the policy is installed", async () => {
  await expect(component).toContainText("runs no version yet");
  await order("Install page", first);
  await runs(first);
});

test("a version is staged while another one runs", async () => {
  await component.getByRole("button", { name: "Upgrade page", exact: true }).click();
  const dialog = page.getByRole("dialog", { name: `Upgrade page on ${host}` });
  await choose(dialog, next);
  await dialog.getByText("Stage only").click();
  await expect(dialog.getByText("1 agent will stage it")).toBeVisible();
  await expectAccessible(page, "the dialog that stages a version");
  await shot("stage-dialog");
  await dialog.getByRole("button", { name: "Stage on 1 agent", exact: true }).click();
  await expect(dialog).toBeHidden();
  await expect(staged()).toHaveText(`page ${next}`, { timeout: UPGRADE_MS });
  await shot("staged");
  await runs(first);
});

test("a component is upgraded, with its phase on the page, and serves the new version", async () => {
  await order("Upgrade page", next);
  await expect(component).toContainText(`Upgrade to ${next}`);
  await expect(component.getByRole("button", { name: "Upgrade page" })).toHaveAccessibleDescription(`It is being upgraded to ${next}.`);
  // The phase that lasts: the seconds that the policy says.
  await expect(component).toContainText("VERIFYING", { timeout: UPGRADE_MS });
  await shot("component-upgrading");
  await runs(next);
  await expect(staged()).toHaveText("nothing");
  await shot("component-upgraded");
});

test("a component is taken back to the version before", async () => {
  await order("Roll back page", first);
  await runs(first);
});

test("a version that ends at once is rolled back, and the page says why", async () => {
  await order("Upgrade page", bad);
  await expect(component).toContainText("Rolling back", { timeout: UPGRADE_MS });
  await shot("component-rolling-back");
  await expect(component).toContainText(`Rolled back from ${bad}`, { timeout: UPGRADE_MS });
  await expect(component).toContainText(/crash loop: it was restarted .* exit status 1; its last output: "page: cannot serve/);
  await runs(first);
  await expectAccessible(page, "a component that was rolled back");
  await shot("component-rolled-back");
});

test("the activity page leads to the agents that run a version of a component", async () => {
  await page.getByRole("navigation").getByRole("link", { name: "Activity" }).click();
  await expect(page.getByRole("listitem", { name: `Upgrade of page on 1 agent to ${bad} failed` })).toContainText("crash loop");
  await page.getByRole("listitem", { name: `Rolled back page on 1 agent to ${first}` }).getByRole("link", { name: `Agents with page ${first}` }).click();
  await expect(page.getByRole("row").getByRole("rowheader").getByRole("link")).toHaveText([host]);
});

/** What the agent's page says is staged. */
const staged = () => page.locator("dt", { hasText: /^Staged$/ }).locator("xpath=following-sibling::dd[1]");

async function choose(dialog: Locator, version: string): Promise<void> {
  await dialog.getByRole("combobox", { name: "Version" }).click();
  await page.getByRole("option", { name: new RegExp(`^${version.replaceAll(".", "\\.")}( \\(newest\\))?$`) }).click();
}

/** Presses a button of the component, chooses a version in its dialog, and confirms it. */
async function order(button: string, version: string): Promise<void> {
  await component.getByRole("button", { name: button, exact: true }).click();
  const back = button.startsWith("Roll back");
  const dialog = page.getByRole("dialog", { name: `${back ? "Roll back" : "Upgrade"} page on ${host}` });
  await choose(dialog, version);
  await expect(dialog.getByText(`1 agent will be ${back ? "rolled back" : "upgraded"}`)).toBeVisible();
  await dialog.getByRole("button", { name: `${back ? "Roll back" : "Upgrade"} page on 1 agent`, exact: true }).click();
  await expect(dialog).toBeHidden();
}

/** The component runs a version, which is healthy, and nothing is under way; and it serves that version. */
async function runs(version: string): Promise<void> {
  await expect(component).toContainText(`runs ${version}`, { timeout: UPGRADE_MS });
  await expect(component.getByRole("button", { name: "Upgrade page" })).not.toHaveAttribute("aria-disabled", "true");
  await expect(component).toContainText("HEALTHY");
  const answer = await page.request.get(served);
  expect(await answer.text()).toBe(`page ${version}\n`);
}

async function shot(name: string): Promise<void> {
  await page.screenshot({ path: `${artifacts}/${name}.png` });
}

function need(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`Set ${name}; what it means stands in test/playwright.config.ts`);
  return value;
}
