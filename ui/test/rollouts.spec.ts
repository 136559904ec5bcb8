// A rollout against a real server and real agents: created, previewed, started with
// a reason, and followed to its end without a reload.
import { expect, test } from "@playwright/test";
import { expectAccessible, watchComplaints } from "./checks";

const login = need("MUSTER_UI_LOGIN");
const version = need("MUSTER_UI_ROLLOUT");
const artifacts = process.env.MUSTER_UI_ARTIFACTS ?? "test-results/screenshots";

/** Two batches of a download, a restart and a watch of some seconds each, on a slow machine. */
const ROLLOUT_MS = 240_000;
const REASON = "all hosts get it this Tuesday";

test("a rolling rollout is created, previewed, started with a reason, and completes", async ({ page }) => {
  const complaints = watchComplaints(page);
  const shot = (name: string) => page.screenshot({ path: `${artifacts}/${name}.png`, fullPage: true });
  await page.goto(login);
  await expect(page.getByRole("heading", { name: "Agents", level: 1 })).toBeVisible();
  const hosts = await page.getByRole("row").getByRole("rowheader").getByRole("link").allInnerTexts();
  expect(hosts.length).toBeGreaterThan(1);
  const count = hosts.length;

  await page.getByRole("navigation").getByRole("link", { name: "Rollouts" }).click();
  await page.getByRole("link", { name: "New rollout…" }).click();
  await page.getByLabel("Plan in YAML").fill(
    `name: In two steps\nversion: ${version}\nselect: { all: true }\nstrategy: { kind: rolling, batch_size: ${count - 1} }\nhealth: { wait: 2s }\n`,
  );
  await page.getByRole("button", { name: "Preview", exact: true }).click();
  await expect(page.getByText(`${count} agents would be upgraded`)).toBeVisible();
  const times = page.getByRole("region", { name: "Batches with estimated times" });
  await expect(times.getByRole("rowheader")).toHaveCount(2);
  await expectAccessible(page, "the preview of a plan");
  await shot("rollout-preview");

  await page.getByRole("button", { name: "Create draft…" }).click();
  await expect(page.getByText("Hash", { exact: true })).toBeVisible();
  await page.getByRole("button", { name: `Start on ${count} agents…` }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Reason").fill(REASON);
  await dialog.getByRole("button", { name: `Start on ${count} agents` }).click();

  await expect(page.getByTitle("State: running")).toBeVisible();
  const targets = page.getByRole("region", { name: "Targets" });
  await expect(targets.getByRole("rowheader")).toHaveCount(count);
  await expect(page.getByRole("region", { name: "All batches" }).getByRole("row", { name: /Under way/ })).toBeVisible();
  await expect(targets.getByRole("row").filter({ hasText: "Upgraded" }).first()).toBeVisible({ timeout: ROLLOUT_MS });
  await expectAccessible(page, "a rollout under way");
  await shot("rollout-running");

  await expect(page.getByTitle("State: completed")).toBeVisible({ timeout: ROLLOUT_MS });
  await expect(page.getByText(`100 % of ${count} targets done`)).toBeVisible();
  for (const host of hosts) await expect(targets.getByRole("row").filter({ has: page.getByRole("link", { name: host, exact: true }) })).toContainText("Upgraded");
  const trail = page.getByRole("list", { name: /^Audit trail/ });
  await expect(trail.getByText(REASON)).toBeVisible();
  await shot("rollout-completed");

  await targets.getByRole("link", { name: hosts[0]!, exact: true }).click();
  await expect(page.getByRole("heading", { name: hosts[0]!, level: 1 })).toBeVisible();
  await expect(page.getByRole("region", { name: "Why (not)?" })).toContainText(version);
  expect(complaints, "errors and Content-Security-Policy reports of the browser").toEqual([]);
});

function need(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`Set ${name}; what it means stands in test/playwright.config.ts`);
  return value;
}
