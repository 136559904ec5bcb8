// Measures long tasks of pages while many hosts change.
import { expect, test } from "@playwright/test";
import { logIn, open } from "../console/console";
import { find, rolloutOf, send } from "../console/stories";
import { longTasks, startFigures, watchThePage } from "./stopwatch";

/** How long a page is watched while hosts change. */
const WATCHED_MS = 20_000;

const { figures, report } = startFigures();

test.beforeEach(async ({ page }) => {
  await watchThePage(page);
  await logIn(page);
});

test.afterAll(report);

test("pages are live while many hosts change", async ({ page }) => {
  const web = await rolloutOf(page, "Web servers", "running", "paused", "completed");
  const live = 'tag: "ring=early"';
  const { total } = await find(page, live, 1);
  console.log(`${total} hosts change`);
  for (const [name, path] of [
    ["Agents", "/agents"],
    ["Overview", "/"],
    ["the board", `/rollouts/${web.id}`],
    ["Activity", "/activity"],
  ] as const) {
    await open(page, path);
    await longTasks(page); // forgets those of loading the page
    await send(page, "POST", "/api/fleet/agents/bulk_update_agent_tags", { agents: live, tagsToAdd: [`watched-on-${name.toLowerCase().replace(" ", "-")}`] });
    await page.waitForTimeout(WATCHED_MS);
    const tasks = await longTasks(page);
    figures.push([`long tasks while hosts change: ${name}`, tasks.length ? tasks : [0]]);
    await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
  }
});
