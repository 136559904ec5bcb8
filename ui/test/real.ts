/** What the specs with real agents share: their variables, and how they read and press the pages. */
import { expect, type Locator, type Page } from "@playwright/test";

/** The variable of the environment, which must be set. */
export function need(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`Set ${name}; what it means stands in test/playwright.config.ts`);
  return value;
}

/** From a click to the end of a watch, twice if it is undone, on a slow machine. */
export const UPGRADE_MS = 240_000;
/** From a click to the first change of an agent. */
export const FIRST_PHASE_MS = 30_000;

/** The words of an upgrade that is under way on a host. */
export const MOVING = /Sent|Accepted|Downloading|Installing|Restarting|Watching/;

export const hosts = (n: number): string => (n === 1 ? "1 host" : `${n} hosts`);

/** Matches the text as it is written. */
export const literal = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** The rows of the agents page. They stay while a query is refused, when nothing can be done with them. */
export const rowsOf = (page: Page): Locator => page.locator("table[aria-label=Hosts] tr[data-row]");

export const rowOf = (page: Page, host: string): Locator => rowsOf(page).filter({ has: page.getByRole("link", { name: host, exact: true }) });

/** The names of the hosts on the agents page, in its order. */
export const hostsOn = (page: Page): Promise<string[]> => rowsOf(page).locator("[data-row-link]").allInnerTexts();

/** The cell of a version: during an upgrade it has a second one, and this finds nothing. */
export const versionCell = (page: Page, version: string): Locator => page.getByRole("cell", { name: version, exact: true });

/** Opens a page by the rail. */
export async function go(page: Page, label: string): Promise<void> {
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: label }).click();
}

/** Opens the page of a host by its row. */
export async function openHost(page: Page, host: string): Promise<void> {
  await rowOf(page, host).getByRole("link", { name: host, exact: true }).click();
  await expect(page.getByRole("heading", { name: host, level: 1 })).toBeVisible();
}

/** Chooses a version in a dialog, from the list of those that are published or kept. */
export async function choose(page: Page, dialog: Locator, version: string): Promise<void> {
  await dialog
    .getByRole("textbox", { name: "Version" })
    .or(dialog.getByRole("combobox", { name: "Version" }))
    .click();
  await page.getByRole("option", { name: version, exact: true }).click();
}

/** The folder of the screenshots. */
const artifacts = process.env.MUSTER_UI_ARTIFACTS ?? "test-results/screenshots";

/** Keeps a picture of the page. */
export async function shot(page: Page, name: string, fullPage = false): Promise<void> {
  await page.screenshot({ path: `${artifacts}/${name}.png`, fullPage });
}
