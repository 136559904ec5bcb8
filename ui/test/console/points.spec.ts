// What the console promises beyond the complaints: each test is a short story of an operator, with the numbers of the server beside it.
import { expect } from "@playwright/test";
import { replaceYaml, watchComplaints } from "../checks";
import { complaintsOf, get, open, test } from "./console";
import {
  actionOf,
  bulk,
  cancel,
  chooseVersion,
  count,
  countIn,
  type Facets,
  facetsOf,
  find,
  freeHosts,
  hostOf,
  hosts,
  nameOf,
  openRow,
  order,
  type Rollout,
  reaches,
  rolloutOf,
  rowOf,
  send,
  stopped,
  table,
  versionField,
} from "./stories";

const q = (kuery: string) => `/agents?kuery=${encodeURIComponent(JSON.stringify(kuery))}`;

test("an upgrade is done when it is committed, and the timeline has it after a reload", async ({ page }) => {
  const [host] = await freeHosts(page, 1);
  const action = await order(page, [host!.id], "2.5.0", { why: "CHG-77 for the story" });
  await open(page, `/agents/${host!.id}`);
  await reaches(page, host!.id, ["committed"]);
  await expect.poll(async () => (await actionOf(page, action)).progress).toEqual({ committed: 1 });
  await page.reload();
  const timeline = page.getByRole("region", { name: "Timeline" });
  const entry = timeline.getByRole("listitem").filter({ hasText: "CHG-77 for the story" });
  await expect(entry).toHaveCount(1);
  await expect(entry).toContainText("Committed");
  await entry.getByRole("button", { expanded: false }).click();
  for (const phase of ["Downloading", "Restarting", "Watching"]) await expect(timeline).toContainText(phase);
  await expect(page).toHaveURL(/entry=/);
  await open(page, `/activity?open=${action}`);
  await expect(openRow(page)).toContainText("1 committed");
});

test("the facets are the server's, and no page asks for all hosts", async ({ page }) => {
  const asked: string[] = [];
  page.on("request", (r) => {
    if (new URL(r.url()).pathname === "/api/fleet/agents") asked.push(new URL(r.url()).searchParams.get("perPage") ?? "none");
  });
  await open(page, "/agents");
  const filters = page.getByRole("complementary", { name: "Filters" });
  await expect(async () => {
    const answer: Facets = await facetsOf(page, "policy,site,os");
    for (const [field, title] of [
      ["policy", "Policy"],
      ["site", "Site"],
    ] as const) {
      for (const v of answer.facets.find((f) => f.field === field)!.values) {
        await expect(filters.getByRole("checkbox", { name: `${title} ${v.label ?? v.value}, ${count(v.count)}`, exact: true })).toBeVisible({ timeout: 1000 });
      }
    }
  }).toPass({ timeout: 20_000 });
  expect(asked.length).toBeGreaterThan(0);
  expect(
    asked.every((n) => Number(n) <= 50),
    `pages of ${asked.join(", ")} hosts`,
  ).toBe(true);
});

test("a preview groups who would refuse by cause, with the choice to include them", async ({ page }) => {
  const kuery = 'policy: "db" and tag: "ring=main"';
  const { total } = await find(page, kuery, 1);
  const preview = await send<{ will: number; causes: { choice?: string; count: number; text: string; will: boolean }[] }>(
    page,
    "POST",
    "/api/v1/upgrade_preview",
    { agents: kuery, version: "2.4.1", max_items: 0 },
  );
  const cause = preview.causes.find((c) => c.choice === "force" && !c.will)!;
  await open(page, q(kuery));
  await bulk(page)
    .getByRole("button", { name: `Select all ${count(total)} that match` })
    .click();
  await bulk(page).getByRole("button", { name: "Upgrade…" }).click();
  const dialog = page.getByRole("dialog");
  await chooseVersion(dialog, "2.4.1");
  await expect(dialog.getByText(`${count(preview.will)} of ${hosts(total)} will be upgraded`)).toBeVisible();
  await expect(dialog.getByText(cause.text)).toBeVisible();
  await dialog
    .getByRole("checkbox", { name: /^Include (this host|these .* hosts) anyway$/ })
    .first()
    .click();
  await expect(dialog.getByRole("button", { name: `Upgrade ${hosts(total)}` })).toBeVisible();
  await dialog.getByRole("button", { name: "Cancel" }).click();
});

test("the overview shows what is so, and leads to it", async ({ page }) => {
  await open(page, "/");
  await expect(async () => {
    const facets = await facetsOf(page, "health,progress");
    await expect(page.getByRole("link", { name: new RegExp(`^${count(countIn(facets, "health", "offline"))}\\s*offline$`) })).toBeVisible({ timeout: 1000 });
    await expect(page.getByRole("link", { name: new RegExp(`^${count(facets.total)}\\s*hosts$`) })).toBeVisible({ timeout: 1000 });
    const { items } = await get<{ items: unknown[] }>(page, "/api/v1/attention");
    await expect(page.getByRole("region", { name: `Needs you (${items.length})` })).toBeVisible({ timeout: 1000 });
  }).toPass({ timeout: 20_000 });
  await expect(page.getByRole("table", { name: /^Hosts by version, last 24 hours/ })).toBeAttached();
  const { causes } = await get<{ causes: { text: string; count: number; kuery: string }[] }>(page, "/api/v1/failures");
  await page.getByRole("region", { name: "Failures by cause" }).getByRole("link").first().click();
  await expect(page).toHaveURL(/\/agents\?kuery=/);
  await expect(table(page).locator("tbody tr")).toHaveCount(causes[0]!.count);
});

test("a view is saved by name, columns are chosen, and the list is exported", async ({ page }) => {
  await open(page, `/agents?site=${encodeURIComponent('["fra"]')}`);
  await page.getByRole("button", { name: "Columns" }).click();
  await page.getByRole("menuitemcheckbox", { name: "OS", exact: true }).click();
  await page.keyboard.press("Escape");
  await expect(table(page).getByRole("columnheader", { name: "OS", exact: true })).toBeVisible();
  await page.getByRole("button", { name: "Views" }).click();
  await page.getByRole("menuitem", { name: "Save this view…" }).click();
  await page.getByRole("dialog").getByRole("textbox", { name: "Name" }).fill("Frankfurt");
  await page.getByRole("dialog").getByRole("button", { name: "Save view" }).click();
  await expect(page.getByRole("button", { name: "Frankfurt", exact: true })).toBeVisible();
  await open(page, "/agents");
  await expect(table(page).getByRole("columnheader", { name: "OS", exact: true })).toBeVisible();
  await page.getByRole("button", { name: "Views" }).click();
  await page.getByRole("menuitem", { name: "Frankfurt" }).click();
  await expect(page).toHaveURL(/site=/);
  const { total } = await find(page, 'site: "fra"', 1);
  await expect(page.getByText(`${hosts(total)} match`)).toBeVisible();
  const href = await page.getByRole("link", { name: "Export CSV" }).getAttribute("href");
  const csv = await page.evaluate(async (url) => (await fetch(url)).text(), href!);
  expect(csv.trim().split("\n")).toHaveLength(total + 1);
});

test("the board: a grid by keyboard, its hosts as a table, and commands with their reasons", async ({ page }) => {
  const r = await stopped(page);
  await open(page, `/rollouts/${r.id}`);
  const grid = page.getByRole("application", { name: `${hosts(r.counts.total!)} by batch` });
  await expect(grid.locator("canvas")).toBeVisible();
  await grid.focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/host=/);
  const rows = page.getByRole("table", { name: "Hosts of this rollout" }).locator("tbody tr");
  await expect(rows).toHaveCount(1);
  await page.getByRole("button", { name: /^Remove the filter Host / }).click();
  await expect(rows).toHaveCount(r.counts.total!);

  await page.getByRole("button", { name: "More", exact: true }).click();
  const refused = r.commands.find((c) => c.name === "approve")!;
  await expect(page.getByRole("menuitem", { name: /^Approve…/ })).toContainText(refused.reason!);
  await page.getByRole("menuitem", { name: /^Force…/ }).click();
  const dialog = page.getByRole("dialog");
  const verb = dialog.getByRole("button", { name: /^Force \d/ });
  await expect(verb).toHaveAccessibleDescription("Give a reason first.");
  await dialog.getByRole("textbox", { name: "Reason" }).fill("a drill");
  const phrase = (await verb.textContent())!.toLowerCase();
  await expect(verb).toHaveAccessibleDescription(`Type “${phrase}” first.`);
  await dialog.getByRole("textbox", { name: /^Type/ }).fill(phrase);
  await expect(verb).not.toHaveAttribute("aria-disabled", "true");
  await dialog.getByRole("button", { name: "Cancel" }).click();
  expect((await get<{ item: Rollout }>(page, `/api/v1/rollouts/${r.id}`)).item.state).toBe("paused");
});

test("approving is the one button of a rollout that waits for it", async ({ page }) => {
  const r = await rolloutOf(page, "Databases", "running");
  await open(page, `/rollouts/${r.id}`);
  await page.getByRole("button", { name: "Approve…" }).click({ timeout: 30_000 });
  await expect(page.getByRole("dialog").getByRole("heading", { name: /^Approve \d+ hosts after the canaries\?$/ })).toBeVisible();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
  await expect(page.getByRole("region", { name: "Waits for" })).toContainText(/approv/i);
});

test("a plan is a form and a text, each follows the other, and nothing is chosen by default", async ({ page }) => {
  const complaints = watchComplaints(page);
  await open(page, "/rollouts/new");
  const form = page.getByRole("region", { name: "Form" });
  const text = page.getByRole("textbox", { name: "Plan in YAML" });
  await expect(form.getByText("Nothing is chosen yet.")).toBeVisible();
  await expect(page.getByRole("button", { name: "Create and start…" })).toHaveAttribute("aria-disabled", "true");
  await form.getByRole("combobox", { name: "Version" }).fill("2.5.0");
  await form.getByRole("textbox", { name: "Name" }).fill("From the form");
  await form.getByRole("combobox", { name: "Query" }).fill('policy: "ci"');
  await expect(text).toContainText(/name: "From the form"/);
  await expect(text).toContainText(/version: "?2\.5\.0/);
  const { total } = await find(page, 'policy: "ci"', 1);
  await expect(form.getByText(`${hosts(total)} match`)).toBeVisible();
  const written = async () => (await text.locator(".cm-line").allTextContents()).join("\n");
  await replaceYaml(text, (await written()).replace("From the form", "From the text"));
  await expect(form.getByRole("textbox", { name: "Name" })).toHaveValue("From the text");
  const lines = `${await written()}\nnonsense: 1\n`.split("\n");
  await replaceYaml(text, lines.join("\n"));
  await page.getByRole("button", { name: `Line ${lines.indexOf("nonsense: 1") + 1}` }).click();
  await expect(text).toBeFocused();
  await expect(page.locator(".cm-lintRange-error")).toHaveText("nonsense: 1");
  await text.press("End");
  await text.press("Backspace");
  await text.press("Backspace");
  await text.press("Enter");
  await text.pressSequentially("more: 2");
  await expect(text.locator(".cm-line", { hasText: "more" })).toHaveText(/^ {2}more: 2$/);
  await text.press("Control+Home");
  await text.press("Shift+ArrowDown");
  await text.pressSequentially("# instead");
  await expect(text.locator(".cm-line").first()).toContainText("# instead");
  expect(complaints).toEqual([]);
  await expect(page.getByRole("button", { name: "Save as draft" })).toHaveAttribute("aria-disabled", "true");
});

test("a change of a policy is read before it is saved, and compared after it", async ({ page }) => {
  const id = `story-${Date.now()}`;
  await send(page, "POST", "/api/fleet/agent_policies", { id, name: id, namespace: "default", description: "before" });
  await open(page, `/policies/${id}`);
  await page.getByRole("button", { name: "Edit policy" }).click();
  await page.getByRole("textbox", { name: "Name" }).fill(`${id}-new`);
  await page.getByRole("button", { name: "Review changes" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog).toContainText(`${id}-new`);
  await dialog.getByRole("button", { name: "Save changes" }).click();
  await expect(page.getByRole("heading", { level: 1, name: `${id}-new` })).toBeVisible();
  await expect(page.getByRole("table", { name: "Revisions" }).locator("tbody tr")).toHaveCount(2);
  await expect(page.getByRole("combobox", { name: "Compare from" })).toBeVisible();
  await expect(page.getByRole("region", { name: "Revisions" })).toContainText(`${id}-new`);
});

test("the trust page names who signs, and the commands for it", async ({ page }) => {
  const { root } = await get<{ root: { keys: { name: string }[] } }>(page, "/api/v1/trust");
  await open(page, "/trust");
  await expect(page.getByRole("main")).toContainText(root.keys[0]!.name);
  await expect(page.getByRole("region", { name: "Commands for the trust in use" })).toContainText("muster ");
});

test("an error keeps the frame, says what is unharmed, and offers to try again", async ({ page }) => {
  await open(page, "/no/such/page");
  await expect(page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Rollouts" })).toBeVisible();
  let broken = true;
  await page.route(/\/api\/v1\/audit\?/, (route) =>
    broken ? route.fulfill({ status: 503, json: { statusCode: 503, error: "Service Unavailable", message: "the store is busy" } }) : route.continue(),
  );
  await page.goto(new URL("/audit", page.url()).href);
  const alert = page.getByRole("main").getByText(/Nothing has been changed/);
  await expect(alert).toBeVisible({ timeout: 30_000 });
  broken = false;
  await page.getByRole("button", { name: "Retry" }).first().click();
  await expect(alert).toHaveCount(0);
});

test("every time names its zone", async ({ page }) => {
  for (const path of ["/agents", "/activity", "/rollouts", "/"]) {
    await open(page, path);
    const times = page.locator("main time");
    await expect(times.first()).toBeVisible();
    const plain = await times.evaluateAll((all) =>
      all.map((t) => `${(t as HTMLElement).title} ${t.textContent}`).filter((text) => !/\b(UTC|GMT|[A-Z]{2,5}T)\b|GMT[+-]/.test(text)),
    );
    expect(plain, `times of ${path} without a zone`).toEqual([]);
  }
});

test("commands of a host are the server's, with its reasons", async ({ page }) => {
  const r = await stopped(page);
  const host = (await find(page, `tag: "ring=early" and policy: edge`)).items.find((h) => h.rollout?.id === r.id)!;
  const upgrade = (await hostOf(page, host.id)).commands!.find((c) => c.name === "upgrade")!;
  expect(upgrade.allowed).toBe(false);
  await open(page, `/agents/${host.id}`);
  await expect(page.getByRole("button", { name: "Upgrade host…" })).toHaveCount(0);
  await page.getByRole("button", { name: "More" }).click();
  await expect(page.getByRole("menuitem", { name: /^Upgrade host…/ })).toContainText(`Not possible now: ${upgrade.reason!.replace(` (${r.id})`, "")}`);
});

test("a host is upgraded without a mouse, and the focus returns", async ({ page }) => {
  const host = (await find(page, 'policy: ci and tag: "ring=main" and version: "2.4.0" and health: healthy')).items[0]!;
  await open(page, "/");
  await page.keyboard.press("g");
  await page.keyboard.press("a");
  await expect(page).toHaveURL(/\/agents/);
  await expect(table(page)).toBeVisible();
  await page.keyboard.press("/");
  await page.keyboard.type(nameOf(host));
  await page.keyboard.press("Enter");
  await expect(table(page).locator("tbody tr")).toHaveCount(1);
  await page.keyboard.press("Tab");
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  await expect(bulk(page)).toContainText("1 host selected");
  const upgrade = bulk(page).getByRole("button", { name: "Upgrade…" });
  for (let i = 0; i < 40 && !(await upgrade.evaluate((b) => b === document.activeElement)); i++) await page.keyboard.press("Tab");
  await expect(upgrade).toBeFocused();
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog");
  await expect(versionField(dialog)).toBeFocused();
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.type("2.5.0");
  const verb = dialog.getByRole("button", { name: `Upgrade ${nameOf(host)}` });
  await expect(verb).not.toHaveAttribute("aria-disabled", "true");
  for (let i = 0; i < 20 && !(await verb.evaluate((b) => b === document.activeElement)); i++) await page.keyboard.press("Tab");
  const answer = page.waitForResponse((r) => r.request().method() === "POST" && r.url().endsWith("/upgrade"));
  await page.keyboard.press("Enter");
  const { actionId } = (await (await answer).json()) as { actionId: string };
  await expect(dialog).toBeHidden();
  await expect(rowOf(page, nameOf(host))).toContainText("Sent");
  await expect(upgrade).toBeFocused();
  await cancel(page, actionId);
});

test("a key is created, and the page shows one line for each platform with its token", async ({ page }) => {
  interface Commands {
    token_word: string;
    items: { platform: string; command?: string; problem?: string }[];
  }
  const answer = await get<Commands>(page, "/api/v1/enrollment_commands");
  await open(page, "/enroll");
  await page.getByRole("button", { name: "Create key…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name (optional)").fill("laptops of the story");
  const created = page.waitForResponse((r) => r.request().method() === "POST" && r.url().endsWith("/enrollment_api_keys"));
  await dialog.getByRole("button", { name: "Create key" }).click();
  const { item } = (await (await created).json()) as { item: { id: string; api_key: string } };
  await expect(dialog).toBeHidden();
  const line = page.getByLabel("Command that installs and enrols a host");
  for (const [platform, word] of [
    ["linux-amd64", "Linux x86-64"],
    ["linux-arm64", "Linux ARM"],
    ["darwin-arm64", "macOS"],
    ["windows-amd64", "Windows"],
  ] as const) {
    const c = answer.items.find((i) => i.platform === platform)!;
    await page.getByRole("radiogroup", { name: "Platform" }).getByText(word, { exact: true }).click();
    if (c.command) await expect(line).toHaveText(c.command.replaceAll(answer.token_word, item.api_key));
    else await expect(page.getByText(c.problem!)).toBeVisible();
  }
  expect(answer.items.filter((i) => i.command).length).toBeGreaterThan(0);
  await send(page, "DELETE", `/api/fleet/enrollment_api_keys/${item.id}`);
});

test("with reduced motion nothing moves", async ({ page }) => {
  const complaints = complaintsOf(page);
  await page.emulateMedia({ reducedMotion: "reduce" });
  const r = await rolloutOf(page, "Web servers", "running");
  for (const path of ["/", "/agents", `/rollouts/${r.id}`]) {
    await open(page, path);
    const moving = await page.evaluate(
      () => document.getAnimations().filter((a) => a.playState === "running" && Number(a.effect?.getComputedTiming().duration) > 1).length,
    );
    expect(moving, `animations of ${path}`).toBe(0);
  }
  expect(complaints).toEqual([]);
});

test("text is set in the fonts that the server ships", async ({ page }) => {
  await open(page, "/agents");
  await expect(table(page)).toBeVisible();
  const loaded = await page.evaluate(async () => {
    await document.fonts.ready;
    return [...document.fonts].filter((f) => f.status === "loaded").map((f) => f.family.replaceAll('"', ""));
  });
  expect(loaded.join()).toMatch(/Inter/);
  expect(loaded.join()).toMatch(/JetBrains Mono/);
});
