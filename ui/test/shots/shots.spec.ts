// The pictures of README and documents, in light and dark.
import { mkdirSync } from "node:fs";
import { expect, type Page, test } from "@playwright/test";
import { get, logIn, open } from "../console/console";

const folder = process.env.MUSTER_UI_SHOTS ?? "shots";

interface Rollouts {
  items: { id: string; plan: { name: string }; counts: { succeeded: number; upgrading: number; verifying: number } }[];
}

/** The rollout of the web servers, in the middle of a batch. */
async function board(page: Page): Promise<string> {
  let id = "";
  await expect
    .poll(
      async () => {
        const { items } = await get<Rollouts>(page, "/api/v1/rollouts?state=running&perPage=20");
        const web = items.find((r) => r.plan.name.startsWith("Web servers"));
        id = web?.id ?? "";
        return !!web && web.counts.succeeded >= 12 && web.counts.upgrading >= 2 && web.counts.verifying >= 2;
      },
      { timeout: 400_000, intervals: [2_000] },
    )
    .toBe(true);
  return id;
}

/** A host that was rolled back, which has a story to tell. */
async function rolledBack(page: Page): Promise<string> {
  const { items } = await get<{ items: { id: string }[] }>(page, `/api/fleet/agents?perPage=1&kuery=${encodeURIComponent("progress: rolled_back")}`);
  return items[0]!.id;
}

const pages: [string, (page: Page) => Promise<string>][] = [
  ["rollout", async (page) => `/rollouts/${await board(page)}`],
  ["overview", async () => "/?window=30d"],
  ["agents", async () => "/agents"],
  ["agent", async (page) => `/agents/${await rolledBack(page)}`],
  ["packages", async () => "/packages"],
];

test.beforeAll(() => mkdirSync(folder, { recursive: true }));

for (const [name, address] of pages) {
  test(`the picture ${name}`, async ({ page }) => {
    await logIn(page);
    const path = await address(page);
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      await open(page, path);
      await page.evaluate(() => document.fonts.ready);
      // A chart's canvas is loaded after its page, and painted in the frame after that.
      await expect(page.locator("figure [role=slider]:not(:has(canvas))")).toHaveCount(0);
      await page.evaluate(() => new Promise((painted) => requestAnimationFrame(() => requestAnimationFrame(painted))));
      await page.screenshot({ path: `${folder}/${name}-${colorScheme}.png`, animations: "disabled" });
    }
  });
}
