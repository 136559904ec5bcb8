// The main task of the product, done in its pages: press Upgrade, and hosts change
// to the new version or return to the old one. It runs against a real server
// and real agents, and against the mock fleet.
import { expect, test, type Locator, type Page } from "@playwright/test";
import { expectAccessible, watchComplaints } from "./checks";

const login = need("MUSTER_UI_LOGIN");
const version = need("MUSTER_UI_VERSION");
const broken = process.env.MUSTER_UI_BROKEN;
const artifacts = process.env.MUSTER_UI_ARTIFACTS ?? "test-results/screenshots";

/** From the click to the end of the watch, on a slow machine. */
const UPGRADE_MS = 240_000;
/** From the click to the first change of an agent. */
const FIRST_PHASE_MS = 30_000;

const PHASE = /Waiting for the agent|Downloading|Unpacking|Switching to the new version|Restarting|Watching the new version/;

test.describe.configure({ mode: "serial" });

let page: Page;
let complaints: string[];

test.beforeAll(async ({ browser }) => {
  page = await (await browser.newContext({ colorScheme: "light" })).newPage();
  complaints = watchComplaints(page);
});

test.afterEach(() => {
  expect(complaints, "errors and Content-Security-Policy reports of the browser").toEqual([]);
});

test("the login link logs in and leaves no key behind", async () => {
  await page.goto(login);
  await expect(page.getByRole("heading", { name: "Agents", level: 1 })).toBeVisible();
  expect(page.url()).not.toContain("key=");
  await page.goBack().catch(() => undefined);
  expect(page.url()).not.toContain("key=");
  await page.goto(new URL("/agents", login).href);
  await expect(page.getByRole("banner").getByText("Live", { exact: true })).toBeVisible();
});

test("the agents are shown healthy, in light and dark", async () => {
  await expect(rows().first()).toBeVisible();
  await expect(rows().filter({ hasText: "Healthy" })).toHaveCount(await rows().count());
  await expectAccessible(page, "the agents page");
  await shot("agents-light");
  await page.emulateMedia({ colorScheme: "dark" });
  await expectAccessible(page, "the agents page in the dark");
  await shot("agents-dark");
  await page.emulateMedia({ colorScheme: "light" });
});

test("Upgrade moves every agent to the new version", async () => {
  const count = await rows().count();
  await page.getByRole("checkbox", { name: /^Select all/ }).check();
  await page.getByRole("button", { name: `Upgrade ${agents(count)}…` }).click();

  const dialog = page.getByRole("dialog", { name: /^Upgrade/ });
  await choose(dialog, version);
  await expect(dialog.getByText(`${agents(count)} will be upgraded`)).toBeVisible();
  const preview = dialog.getByRole("region", { name: "Preview" });
  await expect(preview.getByRole("listitem")).toHaveCount(count);
  await expect(preview.getByRole("listitem").first()).toContainText(version);
  await expectAccessible(page, "the upgrade dialog");
  await shot("upgrade-dialog");

  await dialog.getByRole("button", { name: `Upgrade ${agents(count)}`, exact: true }).click();
  await expect(dialog).toBeHidden();
  await expect(page.getByText(`Upgrading ${agents(count)} to ${version}`)).toBeVisible();
  await expect(rows().filter({ hasText: PHASE }).first()).toBeVisible({ timeout: FIRST_PHASE_MS });
  await shot("agents-upgrading");

  // The whole cell: during an upgrade it has more than a version.
  const settled = page.getByRole("cell", { name: new RegExp(`^${literal(version)}( \\S+ available)?$`) });
  await expect(rows().filter({ has: settled }).filter({ hasText: "Healthy" })).toHaveCount(count, { timeout: UPGRADE_MS });
  await shot("agents-upgraded");
});

test("the activity page shows the actions", async () => {
  await page.getByRole("navigation").getByRole("link", { name: "Activity" }).click();
  const action = page.getByRole("listitem", { name: new RegExp(`^Upgraded .* to ${literal(version)}$`) }).first();
  await expect(action).toBeVisible();
  await expect(action.getByText("Complete")).toBeVisible();
  await expectAccessible(page, "the activity page");
  await shot("activity");
});

test("packages and enrollment keys are shown", async () => {
  await page.getByRole("navigation").getByRole("link", { name: "Packages" }).click();
  await expect(page.getByRole("rowheader", { name: version }).first()).toBeVisible();
  await expectAccessible(page, "the packages page");
  await shot("packages");
  await page.getByRole("navigation").getByRole("link", { name: "Enrollment" }).click();
  await expect(page.getByRole("heading", { name: "Enrollment" })).toBeVisible();
  await expectAccessible(page, "the enrollment page");
});

test("a broken version is rolled back, and the page says why", async () => {
  test.skip(!broken, "MUSTER_UI_BROKEN is not set: no broken version was published");
  await page.getByRole("navigation").getByRole("link", { name: "Agents" }).click();
  const link = rows().first().getByRole("rowheader").getByRole("link");
  const host = await link.innerText();
  await link.click();
  await expect(page.getByRole("heading", { name: host, level: 1 })).toBeVisible();

  await page.getByRole("button", { name: "Upgrade…" }).click();
  const dialog = page.getByRole("dialog", { name: `Upgrade ${host}` });
  await choose(dialog, broken!);
  await dialog.getByRole("button", { name: "Upgrade 1 agent", exact: true }).click();
  await expect(dialog).toBeHidden();
  await expect(page.getByRole("listitem").filter({ hasText: "under way" }).first()).toBeVisible({ timeout: FIRST_PHASE_MS });
  await shot("agent-upgrading");

  const callout = page.getByRole("region", { name: "Last upgrade was rolled back" }).getByText(`Rolled back from ${broken}`);
  await expect(callout).toBeVisible({ timeout: UPGRADE_MS });
  await expect(page.getByText("Reason code")).toBeVisible();
  await expect(page.getByText(new RegExp(`The host runs ${literal(version)}\\.`))).toBeVisible();
  await expect(page.getByRole("button", { name: "Upgrade again…" })).toBeVisible();
  await expectAccessible(page, "an agent after a rollback");
  await shot("agent-rolled-back");

  await page.getByRole("navigation").getByRole("link", { name: "Agents" }).click();
  const row = rows().filter({ has: page.getByRole("link", { name: host, exact: true }) });
  await expect(row).toContainText(/Rolled back: \S+/);
  await expect(row).toContainText("Healthy", { timeout: UPGRADE_MS });
  await shot("agents-rolled-back");
});

function need(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`Set ${name}; what it means stands in test/playwright.config.ts`);
  return value;
}

/** The rows of agents: those with a header cell that links to one. */
function rows(): Locator {
  return page.getByRole("row").filter({ has: page.getByRole("rowheader") });
}

function agents(n: number): string {
  return n === 1 ? "1 agent" : `${n} agents`;
}

async function choose(dialog: Locator, wanted: string): Promise<void> {
  await dialog.getByRole("combobox", { name: "Version" }).click();
  await page.getByRole("option", { name: new RegExp(`^${literal(wanted)}( \\(newest\\))?$`) }).click();
  const spread = dialog.getByRole("combobox", { name: "Spread the starts over" });
  if (await spread.isVisible()) {
    await spread.click();
    await page.getByRole("option", { name: "All at once" }).click();
  }
}

async function shot(name: string): Promise<void> {
  await page.screenshot({ path: `${artifacts}/${name}.png` });
}

function literal(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}
