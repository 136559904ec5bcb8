// Every page, with the simulated fleet: accessible, without errors in the console, as wide as its window. The pages are those of the
// router, so that a new one cannot be forgotten.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect } from "@playwright/test";
import { expectAccessible, expectNoSidewaysScroll, showTheme } from "../checks";
import { base, complaintsOf, get, open, settled, test } from "./console";

const router = readFileSync(fileURLToPath(new URL("../../app/router.tsx", import.meta.url)), "utf8");
const paths = [...router.matchAll(/\bpath: "(\/[^"]*)"/g)].map((m) => m[1]!).filter((path) => path !== "/login");

/** Pages whose contrast is checked in dark, too: those with most colours. */
const dark = ["/", "/agents", "/agents/$agentId", "/rollouts/$rolloutId", "/activity"];

/** What another width can break. All rules take seconds for each page. */
const onPhones = ["scrollable-region-focusable", "aria-hidden-focus", "nested-interactive", "button-name", "link-name", "label", "target-size"];

interface Items<T> {
  items: T[];
}

/** Replaces the parameters of a path by what the fleet has. */
async function fill(page: Parameters<typeof get>[0], path: string): Promise<string> {
  const first = async <T>(list: string, of: (item: T) => string) => of((await get<Items<T>>(page, list)).items[0]!);
  const id = (item: { id: string }) => item.id;
  const values: Record<string, () => Promise<string>> = {
    $agentId: () => first("/api/fleet/agents?perPage=1&kuery=progress%3Arolled_back", id),
    $rolloutId: () => first("/api/v1/rollouts?perPage=1&state=running", id),
    $groupId: () => first("/api/v1/rollout-groups?perPage=1", id),
    $name: () => first("/api/v1/fleets", (f: { metadata: { name: string } }) => f.metadata.name),
    $policyId: async () => "web",
  };
  for (const [name, value] of Object.entries(values)) {
    if (path.includes(name)) path = path.replace(name, await value());
  }
  expect(path, "console/pages.spec.ts knows each parameter of a path").not.toContain("$");
  return path;
}

for (const path of paths) {
  test(`the page ${path}`, async ({ page }) => {
    const complaints = complaintsOf(page);
    const address = await fill(page, path);
    await open(page, address);
    await expectNoSidewaysScroll(page);
    await expectAccessible(page, path);
    if (dark.includes(path)) {
      await showTheme(page, "dark");
      await expectAccessible(page, `${path} in dark`, ["color-contrast"]);
      await showTheme(page, "light");
    }
    await page.setViewportSize({ width: 390, height: 844 });
    await settled(page);
    await expectNoSidewaysScroll(page);
    await expectAccessible(page, `${path} on a phone`, onPhones);
    expect(complaints, `errors in the console of ${path}`).toEqual([]);
  });
}

test("an address without a page keeps the frame", async ({ page }) => {
  const complaints = complaintsOf(page);
  await open(page, "/no/such/page");
  await expect(page.getByRole("navigation").first()).toBeVisible();
  await expectAccessible(page, "a page that does not exist");
  expect(complaints).toEqual([]);
});

test("without a session the login page comes first and leads back", async ({ browser }) => {
  const page = await browser.newPage();
  await page.goto(`${base}/rollouts`);
  await expect(page).toHaveURL(/\/login\?from=%2Frollouts/);
  await expectAccessible(page, "the login page");
  await page.close();
});
