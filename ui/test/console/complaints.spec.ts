// Twenty complaints about Kibana's Fleet page, each answered by a test of its number. What the pages show is compared with the server's
// answers. Tests that change something have hosts of their own, so that they run in any order.
import { expect, type Page } from "@playwright/test";
import { get, open, settled, test } from "./console";
import {
  actionOf,
  bulk,
  cancel,
  chooseVersion,
  confirm,
  count,
  countIn,
  facetsOf,
  find,
  freeHosts,
  hostOf,
  hosts,
  nameOf,
  openRow,
  order,
  reaches,
  rolloutOf,
  rowOf,
  send,
  stopped,
  table,
  versionField,
  versionsOf,
} from "./stories";

const activity = "/activity";
const failedActions = `${activity}?outcome=${encodeURIComponent('["FAILED"]')}`;
const hostsOfAction = (page: Page) => page.getByRole("table", { name: "Hosts of this action" });
const q = (kuery: string) => `/agents?kuery=${encodeURIComponent(JSON.stringify(kuery))}`;

test("1 select-all upgrades exactly the hosts that the filters show", async ({ page }) => {
  await open(
    page,
    `/agents?policy=${encodeURIComponent('["web"]')}&version=${encodeURIComponent('["2.4.0"]')}&progress=${encodeURIComponent('["committed"]')}`,
  );
  await page.getByRole("checkbox", { name: /^Tag ring=main,/ }).click();
  // Not those whose upgrade has failed, which story 14 counts.
  const kuery = 'policy: "web" and version: "2.4.0" and progress: "committed" and tag: "ring=main"';
  const { items, total } = await find(page, kuery);
  expect(total, "more than a page of hosts").toBeGreaterThan(50);
  await expect(page.getByText(`${hosts(total)} match`)).toBeVisible();
  await expect(table(page).locator("tbody tr")).toHaveCount(50);
  await bulk(page)
    .getByRole("button", { name: `Select all ${count(total)} that match` })
    .click();
  await expect(bulk(page)).toContainText(`All ${hosts(total)} selected`);
  await bulk(page).getByRole("button", { name: "Upgrade…" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog.getByRole("heading", { name: new RegExp(`^Upgrade ${hosts(total)} to `) })).toBeVisible();
  await chooseVersion(dialog, "2.5.0");
  await expect(dialog.getByText(`All ${hosts(total)} will be upgraded`)).toBeVisible();
  const action = await confirm(page, dialog, `Upgrade ${hosts(total)}`);
  const ordered = await find(page, `upgrade_action_id: "${action}"`);
  expect(ordered.items.map(nameOf)).toEqual(items.map(nameOf));
  await cancel(page, action);
});

test("2 the number of a selection of everything is exact", async ({ page }) => {
  const { total } = await find(page, "*", 1);
  await open(page, "/agents");
  await expect(page.getByRole("button", { name: `All hosts: ${count(total)}` })).toBeVisible();
  await bulk(page)
    .getByRole("button", { name: `Select all ${count(total)} that match` })
    .click();
  await bulk(page).getByRole("button", { name: "Upgrade…" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog.getByRole("heading", { name: new RegExp(`^Upgrade ${hosts(total)} to `) })).toBeVisible();
  // Who would be left out is part of it: both numbers together are the selection.
  await expect(dialog.getByText(new RegExp(`(of|All) ${hosts(total)} will be upgraded`))).toBeVisible();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  // Inactive and unenrolled hosts only count when they are asked for.
  await page.getByRole("switch", { name: "Show inactive and unenrolled" }).click();
  const all = await get<{ total: number }>(page, "/api/fleet/agents?perPage=1&showInactive=true");
  expect(all.total).toBeGreaterThan(total);
  await expect(bulk(page).getByRole("button", { name: `Select all ${count(all.total)} that match` })).toBeVisible();
});

test("3 with a filter the tiles count the whole fleet, not one page", async ({ page }) => {
  const kuery = 'version: ("2.3.0" or "2.4.0")';
  await open(page, `/agents?version=${encodeURIComponent('["2.3.0","2.4.0"]')}&page=2`);
  await expect(async () => {
    const facets = await facetsOf(page, "health,progress", kuery);
    expect(facets.total).toBeGreaterThan(50);
    const tiles = page.getByRole("group", { name: "Numbers, each a filter" });
    for (const [word, value] of [
      ["Healthy", "healthy"],
      ["Degraded", "degraded"],
      ["Failed", "failed"],
      ["Offline", "offline"],
    ] as const) {
      await expect(tiles.getByRole("button", { name: `${word}: ${count(countIn(facets, "health", value))}` })).toBeVisible({ timeout: 1000 });
    }
    await expect(tiles.getByRole("button", { name: `All hosts: ${count(facets.total)}` })).toBeVisible({ timeout: 1000 });
    const bad = countIn(facets, "progress", "failed") + countIn(facets, "progress", "rolled_back");
    await expect(tiles.getByRole("button", { name: `Upgrade failed or rolled back: ${count(bad)}` })).toBeVisible({ timeout: 1000 });
  }).toPass({ timeout: 20_000 });
});

test("4 a host whose upgrade failed is not “updating”", async ({ page }) => {
  const host = (await find(page, "progress: failed and health: healthy")).items[0]!;
  await open(page, q("progress: failed"));
  const row = rowOf(page, nameOf(host));
  await expect(row).toContainText("Failed");
  await expect(row).toContainText("Healthy");
  await expect(row).not.toContainText(/updating|Downloading|Installing|Sent/i);
  await open(page, `/agents/${host.id}`);
  const upgrade = page.getByRole("region", { name: `Upgrade to ${host.progress!.version} failed` });
  await expect(upgrade).toContainText(/\./);
  await expect(upgrade.locator("[aria-current=step]")).toHaveCount(0);
});

test("5 no host of a large upgrade is forgotten: each is committed, has failed, or is waited for", async ({ page }) => {
  const live = await freeHosts(page, 2);
  const away = (await find(page, "health: offline and version: 2.4.0 and not progress: waiting_for_host")).items[0]!;
  const action = await order(page, [...live.map((h) => h.id), away.id], "2.5.0");
  for (const h of live) await reaches(page, h.id, ["committed", "failed", "rolled_back"]);
  await open(page, `${activity}?open=${action}`);
  await expect(async () => {
    const a = await actionOf(page, action);
    expect(Object.values(a.progress!).reduce((n, v) => n + v, 0)).toBe(3);
    expect(a.progress!.waiting_for_host).toBe(1);
  }).toPass({ timeout: 10_000 });
  await expect(openRow(page)).toContainText("of 3 hosts");
  await openRow(page).getByRole("link", { name: "1 waiting for the host" }).click();
  await expect(hostsOfAction(page).locator("tbody tr")).toHaveCount(1);
  // It waits; nothing moves that is not there.
  await expect(hostsOfAction(page)).toContainText(nameOf(away));
  await expect(hostsOfAction(page)).toContainText("Waiting for the host");
  await expect(page.getByRole("progressbar")).toHaveCount(0);
  await cancel(page, action);
});

test("6 a failed or stuck upgrade can be ordered again", async ({ page }) => {
  const [failed] = await freeHosts(page, 1, "rolled_back");
  await open(page, `/agents/${failed!.id}`);
  await page.getByRole("button", { name: "Upgrade host…" }).click();
  const dialog = page.getByRole("dialog");
  await chooseVersion(dialog, "2.4.1");
  await expect(dialog.getByText("The host will not be upgraded")).toBeVisible();
  await expect(dialog.getByText(/failed on the host before/)).toBeVisible();
  await dialog.getByRole("checkbox", { name: "Include this host anyway" }).click();
  await expect(dialog.getByText("The host will be upgraded")).toBeVisible();
  const before = (await hostOf(page, failed!.id)).progress!.since;
  await confirm(page, dialog, `Upgrade ${nameOf(failed!)}`);
  await expect.poll(async () => (await hostOf(page, failed!.id)).progress!.since, { timeout: 20_000 }).not.toBe(before);

  // An order that nobody has answered is not in the way either.
  const stuck = (await find(page, 'policy: db and tag: "ring=main" and version: "2.4.0" and health: healthy')).items[0]!;
  const first = await order(page, [stuck.id], "2.5.0");
  await open(page, q(`host: ${nameOf(stuck)}`));
  await page.getByRole("checkbox", { name: `Select ${nameOf(stuck)}` }).click();
  await bulk(page).getByRole("button", { name: "Upgrade…" }).click();
  await chooseVersion(dialog, "2.5.0");
  await expect(dialog.getByText(/An upgrade is under way/)).toBeVisible();
  await dialog.getByRole("checkbox", { name: "Include this host anyway" }).click();
  const second = await confirm(page, dialog, `Upgrade ${nameOf(stuck)}`);
  expect(second).not.toBe(first);
  await cancel(page, second);
});

test("7 a scheduled host is scheduled, not “stuck”", async ({ page }) => {
  const host = (await find(page, 'policy: db and tag: "ring=main" and version: "2.4.0" and health: healthy')).items[1]!;
  const at = new Date(Date.now() + 5 * 3_600_000).toISOString();
  const action = await order(page, [host.id], "2.5.0", { start_time: at });
  await open(page, q(`host: ${nameOf(host)}`));
  await expect(rowOf(page, nameOf(host))).toContainText(/Healthy.*Scheduled/);
  await open(page, `/agents/${host.id}`);
  const upgrade = page.getByRole("region", { name: "Upgrade from 2.4.0 to 2.5.0" });
  await expect(upgrade).toContainText("Scheduled");
  await expect(upgrade).toContainText(/It begins in (4|5) h/);
  await expect(page.getByRole("main")).not.toContainText(/stuck|failing/i);
  await cancel(page, action);
});

test("8 activity calls a failed upgrade failed", async ({ page }) => {
  const r = await stopped(page);
  const action = await actionOf(page, `${r.id}-g1-1`);
  expect(action.progress!.rolled_back).toBeGreaterThan(0);
  await open(page, failedActions);
  const row = page
    .getByRole("row")
    .filter({ has: page.getByRole("link", { name: r.plan.name, exact: true }) })
    .filter({ hasText: "Upgrade to" })
    .last();
  await expect(row).toContainText("Failed");
  await expect(row).not.toContainText("Complete");
  await expect(row).toContainText(`${action.progress!.rolled_back} rolled back`);
  await expect(row).toContainText(action.progress!.rolled_back === action.nbAgentsActioned ? "all hosts" : `of ${hosts(action.nbAgentsActioned)}`);
});

test("9 a failure stays in sight while the host checks in again", async ({ page }) => {
  const { items } = await find(page, "progress: (failed or rolled_back) and health: healthy");
  const host = items.find((h) => Date.parse(h.last_checkin) - Date.parse(h.progress!.since) > 3_600_000)!;
  expect(host, "a host that has checked in for an hour since its failure").toBeTruthy();
  const word = host.progress!.state === "failed" ? "Failed" : "Rolled back";
  await open(page, `/agents?progress=${encodeURIComponent('["failed","rolled_back"]')}`);
  await expect(rowOf(page, nameOf(host))).toContainText(word);
  await open(page, `/agents/${host.id}`);
  const upgrade = page.getByRole("region", { name: /^(Rolled back from|Upgrade to) / }).first();
  await expect(upgrade).toContainText(word);
  await page.reload();
  await expect(upgrade).toContainText(word);
  await expect(upgrade).toContainText(/\w{4,}/);
});

test("10 the first failure raises a badge that stays until it is seen", async ({ page }) => {
  await send(page, "POST", "/api/v1/failures/seen", {});
  await open(page, "/agents");
  const badge = page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: /failed upgrades that you have not seen/ });
  await expect(badge).toHaveCount(0);
  const chosen = await freeHosts(page, 2);
  await order(
    page,
    chosen.map((h) => h.id),
    "2.4.1",
  );
  for (const h of chosen) await reaches(page, h.id, ["committed", "rolled_back", "failed"]);
  const ends = await Promise.all(chosen.map((h) => hostOf(page, h.id)));
  expect(ends.filter((h) => h.progress!.state !== "committed").length, "2.4.1 is broken").toBeGreaterThan(0);
  await expect(badge).toBeVisible();
  await expect(async () => {
    const { failures_unseen: unseen } = await get<{ failures_unseen: number }>(page, "/api/v1/attention");
    expect(unseen).toBeGreaterThan(0);
    await expect(badge).toContainText(count(unseen), { timeout: 1000 });
  }).toPass({ timeout: 15_000 });
  await page.reload();
  await expect(badge).toBeVisible();
  await page.getByRole("button", { name: "Mark as seen" }).click();
  await expect(badge).toHaveCount(0);
});

test("11 after a successful retry the old error is history", async ({ page }) => {
  const [host] = await freeHosts(page, 1, "rolled_back");
  const name = nameOf(host!);
  const failure = host!.progress!.reason!.text;
  await open(page, `/agents/${host!.id}`);
  await expect(page.getByRole("region", { name: "Rolled back from 2.4.1 to 2.4.0" })).toContainText(failure);
  await order(page, [host!.id], "2.5.0");
  await reaches(page, host!.id, ["committed"]);
  await expect(page.getByText("runs 2.5.0", { exact: true })).toBeVisible();
  await expect(page.getByRole("region", { name: /^Rolled back/ })).toHaveCount(0);
  const timeline = page.getByRole("region", { name: "Timeline" });
  await expect(timeline).toContainText(failure);
  await open(page, q(`host: ${name}`));
  await expect(rowOf(page, name)).toContainText("Committed");
  await expect(rowOf(page, name)).not.toContainText("Rolled back");
  expect((await find(page, `host: "${name}" and progress: (failed or rolled_back)`)).total).toBe(0);
});

test("12 progress counts what is done, failed and to go, and estimates the end", async ({ page }) => {
  const r = await rolloutOf(page, "Web servers", "running");
  await open(page, `/rollouts/${r.id}`);
  const progress = page.getByRole("region", { name: "Progress", exact: true });
  await expect(async () => {
    const c = (await get<{ item: typeof r }>(page, `/api/v1/rollouts/${r.id}`)).item.counts;
    await expect(progress).toContainText(`${count(c.succeeded!)} of ${hosts(c.total!)} committed`, { timeout: 1000 });
    const left = c.pending! + c.held!;
    if (left > 0) await expect(progress).toContainText(`${count(left)} to go`, { timeout: 1000 });
    const bad = c.rolled_back!;
    if (bad > 0) await expect(progress).toContainText(`${count(bad)} rolled back`, { timeout: 1000 });
  }).toPass({ timeout: 20_000 });
  await expect(page.getByText(/done about (\w+ )?\d{2}:\d{2}/)).toBeVisible({ timeout: 30_000 });
  await expect(page.getByText(/^\d[\d.]*\/(min|h)$/)).toBeVisible();
  await expect(page.getByRole("region", { name: "Would stop" })).toContainText(/fail/);
});

test("13 the errors are there after the rollout is over", async ({ page }) => {
  const r = await rolloutOf(page, "Memory leak", "cancelled", "failed", "completed");
  const failed = r.counts.rolled_back! + r.counts.failed!;
  expect(failed).toBeGreaterThan(0);
  await open(page, `/rollouts/${r.id}`);
  const causes = page.getByRole("region", { name: `Failures by cause: ${hosts(failed)}` });
  for (const c of r.causes!) await expect(causes).toContainText(c.text);
  await causes.getByRole("button").first().click();
  const rows = page.getByRole("table", { name: "Hosts of this rollout" }).locator("tbody tr");
  await expect(rows.first()).toContainText("Rolled back");
  await expect(rows.first()).toContainText(/\.$|\. /);
});

test("14 a failed action shows its hosts, also after newer orders and wherever it is in the list", async ({ page }) => {
  const host = (await find(page, "health: offline and version: 2.4.0 and not progress: waiting_for_host")).items.at(-1); // it begins none of the orders
  const failed = await order(page, [host!.id], "2.5.0");
  await cancel(page, failed);
  const newer = await order(page, [host!.id], "2.5.0");
  expect((await find(page, `upgrade_action_id: "${failed}"`)).total, "hosts of which the action is the last order").toBe(0);
  const { items } = await get<{ items: { agentId: string; state: string }[] }>(page, `/api/v1/actions/${failed}/agents`);
  expect(items.map((h) => h.agentId)).toEqual([host!.id]);
  // No page of the list has it: the link does.
  await open(page, `${failedActions}&open=${failed}`);
  await expect(page.getByRole("region", { name: "The action of the link" })).toContainText("Upgrade to 2.5.0");
  await expect(hostsOfAction(page).getByRole("link", { name: nameOf(host!) })).toBeVisible();
  await expect(hostsOfAction(page)).toContainText("Stopped");
  await cancel(page, newer);

  const all = await get<{ items: { actionId: string; outcome: string; version?: string; progress?: Record<string, number> }[] }>(
    page,
    "/api/fleet/agents/action_status?perPage=100",
  );
  const action = all.items.find((a) => a.outcome === "FAILED" && a.progress?.failed && a.version)!;
  await open(page, `${failedActions}&open=${action.actionId}`);
  await expect(page.getByRole("region", { name: "Failures by cause" })).toBeVisible();
  await openRow(page)
    .getByRole("link", { name: `${count(action.progress!.failed!)} failed` })
    .click();
  await expect(page).toHaveURL(/state=failed/);
  await expect(page.getByRole("navigation", { name: "Pages of hosts" })).toContainText(`of ${count(action.progress!.failed!)} hosts`);
  await expect(hostsOfAction(page).locator("tbody tr").first()).toContainText("Failed");
});

test("15 a scheduled upgrade waits for its time, and one for now begins now", async ({ page }) => {
  const [host] = await freeHosts(page, 1);
  const name = nameOf(host!);
  await open(page, q(`host: ${name}`));
  await page.getByRole("checkbox", { name: `Select ${name}` }).click();
  await bulk(page).getByRole("button", { name: "Upgrade…" }).click();
  const dialog = page.getByRole("dialog");
  await chooseVersion(dialog, "2.5.0");
  await dialog.getByText("At a time").click();
  await expect(dialog.getByLabel("Start time, in your time zone")).toHaveValue(/^\d{4}-/);
  const action = await confirm(page, dialog, `Schedule for ${name}`);
  await expect(rowOf(page, name)).toContainText("Scheduled");
  await open(page, `${activity}?open=${action}`);
  const row = openRow(page);
  await expect(row).toContainText("Scheduled");
  await expect(row).toContainText(/begins in/);
  const later = await hostOf(page, host!.id);
  expect([later.progress!.state, later.agent.version]).toEqual(["scheduled", host!.agent.version]);
  await row.getByRole("button", { name: "Cancel Upgrade to 2.5.0" }).click();
  await dialog.getByRole("button", { name: "Cancel upgrade" }).click();
  await expect(row).toContainText("Cancelled");

  const now = await order(page, [host!.id], "2.5.0");
  await expect.poll(async () => (await actionOf(page, now)).outcome).not.toBe("SCHEDULED");
  await reaches(page, host!.id, ["downloading", "installing", "restarting", "watching", "committed"]);
  await open(page, `${activity}?open=${now}`);
  await expect(row).toContainText("Upgrade to 2.5.0");
  await expect(row).not.toContainText(/Scheduled|begins/);
});

test("16 the newest version is offered first, without the internet", async ({ page }) => {
  const outside: string[] = [];
  page.on("request", (r) => {
    if (!/^(localhost|127\.0\.0\.1)$/.test(new URL(r.url()).hostname)) outside.push(r.url());
  });
  const host = (await find(page, 'version: 2.4.0 and tag: "ring=main"')).items[0]!;
  await open(page, q(`host: ${nameOf(host)}`));
  await page.getByRole("checkbox", { name: `Select ${nameOf(host)}` }).click();
  await bulk(page).getByRole("button", { name: "Upgrade…" }).click();
  const [newest, ...older] = await versionsOf(page);
  const field = versionField(page.getByRole("dialog"));
  await expect(field).toHaveValue(newest!);
  await expect(page.getByRole("dialog").getByText("The newest package")).toBeVisible();
  await field.click();
  for (const v of [newest!, ...older]) await expect(page.getByRole("option", { name: v, exact: true })).toBeVisible();
  expect(outside).toEqual([]);
});

test("17 versions are compared as versions, not as texts", async ({ page }) => {
  const { total } = await find(page, "*", 1);
  await open(page, "/agents");
  const bar = page.getByRole("combobox", { name: "Search hosts" });
  await bar.fill("version < 2.10.0");
  await bar.press("Enter");
  await expect(page.getByText(`${hosts(total)} match`)).toBeVisible();
  await bar.fill("version >= 2.10.0");
  await bar.press("Enter");
  await expect(page.getByText("No host matches")).toBeVisible();
  await bar.fill("version > 2.3.0 and version < 2.4.1");
  await bar.press("Enter");
  await expect(async () => {
    // hosts of a rollout leave the version meanwhile
    const { total: some } = await find(page, "version: 2.4.0", 1);
    await expect(page.getByText(`${hosts(some)} match`)).toBeVisible({ timeout: 1000 });
  }).toPass({ timeout: 20_000 });
});

test("18 hosts and policies are sorted across all pages", async ({ page }) => {
  const { items } = await find(page, "*", 1000);
  const names = items.map(nameOf).sort();
  const column = (n: number) => table(page).locator(`tbody tr td:nth-child(${n})`);
  await open(page, "/agents?sort=host");
  await expect(column(2).first().getByRole("link")).toHaveText(names[0]!);
  await table(page).getByRole("button", { name: "Host" }).click();
  await expect(table(page).getByRole("columnheader", { name: "Host" })).toHaveAttribute("aria-sort", "descending");
  await expect(column(2).first().getByRole("link")).toHaveText(names.at(-1)!);
  await expect.poll(() => table(page).locator("[data-row-link]").allTextContents()).toEqual(names.reverse().slice(0, 50));
  await table(page).getByRole("button", { name: "Policy" }).click();
  const ids = items.map((h) => h.policy_id).sort();
  const label = async (id: string) => (await get<{ item: { name: string } }>(page, `/api/fleet/agent_policies/${id}`)).item.name;
  await expect(column(6).first()).toHaveText(await label(ids[0]!));
  await table(page).getByRole("button", { name: "Policy" }).click();
  await expect(column(6).first()).toHaveText(await label(ids.at(-1)!));
});

test("19 a host goes back to its earlier version, and can be upgraded again", async ({ page }) => {
  await rolloutOf(page, "CI workers", "completed", "failed");
  const host = (await find(page, 'policy: ci and tag: "ring=early" and version: 2.5.0 and progress: committed')).items[0]!;
  await open(page, `/agents/${host.id}`);
  await page.getByRole("button", { name: "Roll back…" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog).toContainText(/2\.5\.0.*2\.4\.0/);
  await confirm(page, dialog, /^Roll back/);
  await expect(page.getByText("runs 2.4.0", { exact: true })).toBeVisible({ timeout: 30_000 });
  await reaches(page, host.id, ["committed", "rolled_back"]);
  await page.getByRole("button", { name: "Upgrade host…" }).click();
  await chooseVersion(dialog, "2.5.0");
  await expect(dialog.getByText("The host will be upgraded")).toBeVisible();
  await confirm(page, dialog, `Upgrade ${nameOf(host)}`);
  await expect(page.getByText("runs 2.5.0", { exact: true })).toBeVisible({ timeout: 30_000 });
});

test("20 nothing selected is never everything, and an automatic upgrade names its versions", async ({ page }) => {
  await open(page, "/agents");
  for (const name of ["Upgrade…", "Roll out to these…", "More"]) {
    const button = bulk(page).getByRole("button", { name });
    await expect(button).toHaveAttribute("aria-disabled", "true");
    await expect(button).toHaveAccessibleDescription("Select hosts first.");
    await button.focus();
    await page.keyboard.press("Enter");
    await expect(page.getByRole("dialog")).toHaveCount(0);
  }
  // The server does not take an empty query for all hosts either.
  const refused = await page.evaluate(async () => {
    const answer = await fetch("/api/fleet/agents/bulk_upgrade", {
      method: "POST",
      headers: { "Content-Type": "application/json", "kbn-xsrf": "console" },
      body: JSON.stringify({ agents: "", version: "2.5.0" }),
    });
    return answer.status;
  });
  expect(refused).toBe(400);
  await open(page, "/policies/desk");
  await settled(page);
  await page
    .getByRole("button", { name: /^(Edit|Change)/ })
    .first()
    .click();
  const automatic = page.getByRole("group", { name: "Versions that its hosts are upgraded to automatically" });
  await expect(automatic).toContainText("Without a line it starts none.");
  await automatic.getByRole("button", { name: "Add version" }).click();
  const version = automatic.getByLabel("Version", { exact: true }).last();
  await expect(version).toHaveValue("");
  const review = page.getByRole("button", { name: "Review changes" });
  await expect(review).toHaveAttribute("aria-disabled", "true");
  // A version that nobody has published is refused, with those near it.
  await version.fill("99.0.0");
  await page.keyboard.press("Escape");
  const times = page.getByRole("group", { name: "When they are upgraded automatically" });
  await times.getByRole("button", { name: "Add a maintenance window" }).click();
  await times.getByRole("textbox", { name: "From" }).fill("01:00");
  await review.click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: "Save changes" }).click();
  await expect(dialog).toContainText(`no package of that version is published`);
  await expect(dialog).toContainText((await versionsOf(page))[0]!);
  await dialog.getByRole("button", { name: "Cancel" }).click();
  // The windows alone are saved, and the page shows them.
  await automatic.getByRole("button", { name: "Remove the line of 99.0.0" }).click();
  await review.click();
  await dialog.getByRole("button", { name: "Save changes" }).click();
  await expect(page.getByText(/^every day 01:00–04:00 /)).toBeVisible();
});
