// Measures the times to the first row, and how soon an input is answered on the screen. It asserts no time, since that depends on the
// machine; it fails if a page does not work.
import { test } from "@playwright/test";
import { base, logIn, open } from "../console/console";
import { bulk, chooseVersion, rolloutOf, table } from "../console/stories";
import { openedIn, requestOf, shownIn, slowestInputs, startFigures, watchThePage } from "./stopwatch";

/** How often each is measured. The 95th percentile of 20 is the second worst. */
const ROUNDS = Number(process.env.MUSTER_UI_ROUNDS ?? 20);
const { figures, report } = startFigures();

test.beforeEach(async ({ page }) => {
  await watchThePage(page);
  await logIn(page);
});

test.afterAll(report);

test("the first row of each page", async ({ page }) => {
  const web = await rolloutOf(page, "Web servers", "running", "paused", "completed");
  const pages: [string, string, string][] = [
    ["Overview, health of the fleet", "/", "main a[href*='health']"],
    ["Agents", "/agents", "main tbody tr td a"],
    ["Agents, a query", `/agents?kuery=${encodeURIComponent(JSON.stringify("health: offline and tag: critical"))}`, "main tbody tr td a"],
    ["Activity", "/activity", "main tbody tr td time"],
    ["Incidents", "/incidents", "main tbody tr td"],
    ["Rollouts", "/rollouts", "main tbody tr td a"],
    ["the board of a rollout, its grid", `/rollouts/${web.id}`, "main canvas"],
    ["Audit", "/audit", "main tbody tr td time"],
  ];
  for (const [name, path, selector] of pages) {
    const took: number[] = [];
    const parts: Record<string, number[]> = { "until the hosts are asked for": [], "the server's answer": [], "until the rows are painted": [] };
    for (let i = 0; i < ROUNDS; i++) {
      const painted = await openedIn(page, base + path, selector);
      took.push(painted);
      if (name !== "Agents") continue;
      const { asked, answered } = await requestOf(page, "/api/fleet/agents?");
      for (const [k, ms] of [asked, answered - asked, painted - answered].entries()) Object.values(parts)[k]!.push(ms);
    }
    figures.push([`first row: ${name}`, took]);
    if (name === "Agents") for (const [part, ms] of Object.entries(parts)) figures.push([`· of it ${part}`, ms]);
  }
});

test("an input is answered on the screen", async ({ page }) => {
  const inputs: number[] = [];
  const shown: Record<string, number[]> = {};
  const time = async (name: string, act: () => Promise<unknown>, selector: string, what: "appears" | "changes" | "goes") => {
    shown[name] ??= [];
    shown[name].push(await shownIn(page, act, selector, what));
  };
  const firstRow = "main tbody tr:first-child td a";
  const matches = "main [role=status]";
  for (let i = 0; i < ROUNDS; i++) {
    await open(page, "/");
    await time(
      "page by the rail",
      () =>
        page
          .getByRole("navigation", { name: "Pages" })
          .getByRole("link", { name: /^Agents/ })
          .click(),
      firstRow,
      "appears",
    );
    const hosts = table(page);
    const facet = page.getByRole("complementary", { name: "Filters" }).getByRole("checkbox", { name: /^Site fra/ });
    await facet.waitFor();
    await time("facet", () => facet.click(), matches, "changes");
    await time("facet removed", () => page.getByRole("button", { name: /^Remove the filter Site/ }).click(), matches, "changes");
    await time("sort", () => hosts.getByRole("button", { name: /^Host/ }).click(), firstRow, "changes");
    await time("next page", () => page.getByRole("button", { name: "Next page" }).click(), firstRow, "changes");
    await time(
      "selection of all that match",
      async () => {
        await page.getByRole("checkbox", { name: "Select the rows of this page" }).click();
      },
      "[aria-label='Orders for the selected hosts']",
      "appears",
    );
    await time("dialog", () => bulk(page).getByRole("button", { name: "Upgrade…" }).click(), "[role=dialog]", "appears");
    await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
    await time("command palette", () => page.keyboard.press("Control+k"), "[role=dialog] input", "appears");
    await time("hosts found in the palette", () => page.keyboard.insertText("web-fra-00"), "[role=listbox] [aria-labelledby$='-Hosts']", "appears");
    await page.keyboard.press("Escape");
    await time(
      "host",
      () => hosts.locator(firstRow.replace("main ", "")).first().click(),
      "main section[aria-label^=Timeline], main [aria-labelledby]",
      "appears",
    );
    inputs.push(...(await slowestInputs(page)));
  }
  for (const [name, ms] of Object.entries(shown)) figures.push([`shown: ${name}`, ms]);
  figures.push(["input → next paint, each input", inputs]);
});

test("the preview of an upgrade of the whole fleet", async ({ page }) => {
  const took: number[] = [];
  for (let i = 0; i < 5; i++) {
    await open(page, "/agents");
    await page.getByRole("checkbox", { name: "Select the rows of this page" }).click();
    await bulk(page)
      .getByRole("button", { name: /^Select all .* that match$/ })
      .click();
    await bulk(page).getByRole("button", { name: "Upgrade…" }).click();
    const dialog = page.getByRole("dialog");
    const began = Date.now();
    await chooseVersion(dialog, "2.5.0");
    await dialog.getByText(/ of .* hosts will be upgraded/).waitFor({ timeout: 60_000 });
    took.push(Date.now() - began);
  }
  figures.push(["preview of an upgrade of all hosts", took]);
});
