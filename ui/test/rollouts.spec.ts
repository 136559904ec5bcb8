// A rollout against a real server and real agents: previewed while it is written, kept as a draft,
// started with a reason, paused and resumed, approved after its canary, and followed to its end
// without a reload.
import { expect, test } from "@playwright/test";
import { expectAccessible, replaceYaml, watchComplaints } from "./checks";
import { go, hosts, hostsOn, need, rowsOf, shot, UPGRADE_MS } from "./real";

const login = need("MUSTER_UI_LOGIN");
const version = need("MUSTER_UI_ROLLOUT");

const WHY = "all hosts get it this Tuesday";
const WHY_APPROVED = "the canary is well";

test("a rollout is previewed, started, paused, resumed, approved, and completes", async ({ page }) => {
  const complaints = watchComplaints(page);
  await page.goto(login);
  await go(page, "Agents");
  await expect(rowsOf(page).first()).toBeVisible();
  const names = await hostsOn(page);
  const count = names.length;
  expect(count).toBeGreaterThan(1);
  const rest = hosts(count - 1);

  await go(page, "Rollouts");
  await page.getByRole("link", { name: "Create rollout" }).click();
  await replaceYaml(
    page.getByLabel("Plan in YAML"),
    `name: In two steps\nversion: ${version}\nselect: { all: true }\nstrategy: { kind: canary, canary: { size: 1, approval: true }, batch_size: ${count - 1} }\nhealth: { wait: 2s }\n`,
  );
  await expect(page.getByRole("status").filter({ hasText: "would be upgraded" })).toContainText(new RegExp(`^${count}\\s*hosts would be upgraded`));
  await page.getByText("Sizes and times of the batches").click();
  await expect(page.getByRole("region", { name: "Sizes and times of the batches" }).locator("tbody tr")).toHaveCount(2);
  await expect(page.getByText(`${hosts(count)} in 2 batches`)).toBeVisible();
  await expectAccessible(page, "the preview of a plan");
  await shot(page, "rollout-preview", true);

  await page.getByRole("button", { name: "Save as draft" }).click();
  const title = page.getByRole("heading", { name: /^In two steps/, level: 1 });
  await expect(title).toBeVisible();
  const board = page.getByRole("main");
  await expect(board.getByText("Draft", { exact: true })).toBeVisible();
  await page.getByRole("button", { name: `Upgrade ${hosts(count)}…` }).click();
  const start = page.getByRole("dialog", { name: `Start “In two steps” on ${hosts(count)}?` });
  await start.getByLabel("Reason").fill(WHY);
  // More than half of the fleet is confirmed by typing.
  await start.getByLabel("to confirm").fill(`upgrade ${count}`);
  await start.getByRole("button", { name: `Upgrade ${hosts(count)}`, exact: true }).click();

  await expect(board.getByText("Running", { exact: true }).first()).toBeVisible();
  const targets = page.getByRole("table", { name: "Hosts of this rollout" });
  const rows = targets.locator("tr[data-row]");
  await expect(rows).toHaveCount(count);
  await page.getByRole("button", { name: "Pause…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Pause after batch 1", exact: true }).click();
  await expect(page.getByRole("region", { name: "Waits for" })).toContainText("has asked for a pause after this batch");
  await expectAccessible(page, "a rollout under way");
  await shot(page, "rollout-running", true);

  // The batch under way ends: one host is committed, and the others are as they were.
  await expect(board.getByText("Paused", { exact: true }).first()).toBeVisible({ timeout: UPGRADE_MS });
  const progress = page.getByRole("region", { name: "Progress" });
  await expect(progress).toContainText(`1 of ${hosts(count)} committed`);
  // The plan waits for a shorter time than the host watches.
  await expect(rows.filter({ hasText: "Committed" })).toHaveCount(1, { timeout: UPGRADE_MS });
  await shot(page, "rollout-paused", true);
  await page.getByRole("button", { name: "Resume…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Resume rollout", exact: true }).click();

  await expect(board.getByText("Waiting", { exact: true }).first()).toBeVisible();
  await expect(rows.filter({ hasText: "Committed" })).toHaveCount(1);
  await page.getByRole("button", { name: "Approve…" }).click();
  const approve = page.getByRole("dialog", { name: `Approve ${rest} after the canaries?` });
  await approve.getByLabel("Reason").fill(WHY_APPROVED);
  await shot(page, "rollout-approve");
  await approve.getByRole("button", { name: `Approve ${rest}`, exact: true }).click();

  await expect(board.getByText("Completed", { exact: true }).first()).toBeVisible({ timeout: UPGRADE_MS });
  await expect(board).toContainText("100 %");
  await expect(board).toContainText(`All ${hosts(count)} run ${version}.`);
  for (const name of names)
    await expect(rows.filter({ has: page.getByRole("link", { name, exact: true }) })).toContainText("Committed", { timeout: UPGRADE_MS });
  for (const why of [WHY, WHY_APPROVED]) await expect(page.getByRole("listitem").filter({ hasText: why })).toBeVisible();
  await expectAccessible(page, "a completed rollout");
  await shot(page, "rollout-completed", true);

  await targets.getByRole("link", { name: names[0]!, exact: true }).click();
  await expect(page.getByRole("heading", { name: names[0]!, level: 1 })).toBeVisible();
  await expect(page.getByRole("region", { name: "Why" })).toContainText(version);
  const entry = page.getByRole("listitem").filter({ has: page.getByRole("button", { name: `Upgrade of the agent to ${version}` }) });
  await expect(entry).toContainText("Committed");
  await expect(entry).toContainText("with the rollout In two steps");
  expect(complaints, "errors and Content-Security-Policy reports of the browser").toEqual([]);
});
