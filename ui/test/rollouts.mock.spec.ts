// Rollouts as an operator uses them: created, previewed, started, paused, explained.
// The mock's engine runs them; a minute of a plan takes a fifth of a second.
import { expect, test, type Page } from "@playwright/test";
import { expectAccessible, expectNoSidewaysScroll, watchComplaints } from "./checks";
import { PORTS } from "./playwright.mock.config";

const at = (path: string, fleet: keyof typeof PORTS = "rollouts") => `http://localhost:${PORTS[fleet]}${path}`;

async function open(page: Page, path: string, fleet: keyof typeof PORTS = "rollouts"): Promise<void> {
  await page.context().addCookies([{ name: "muster_session", value: "mock", url: at("/", fleet) }]);
  await page.goto(at(path, fleet));
}

/** Both schemes: a colour that is readable on white may be unreadable on black. Only colours differ. */
async function expectAccessibleInBoth(page: Page, what: string): Promise<void> {
  await expectAccessible(page, `${what}, light`);
  await page.emulateMedia({ colorScheme: "dark" });
  await expectAccessible(page, `${what}, dark`, ["color-contrast"]);
  await page.emulateMedia({ colorScheme: "light" });
}

interface Planned {
  name: string;
  version: string;
  strategy: string;
  select?: string;
  failures?: number;
}

function yaml({ name, version, strategy, select = "{ all: true }", failures }: Planned): string {
  return `name: ${name}\nversion: ${version}\nselect: ${select}\nstrategy: ${strategy}\n${failures ? `failure: { count: ${failures} }\n` : ""}`;
}

async function draft(page: Page, plan: Planned): Promise<void> {
  await open(page, "/rollouts/new");
  await page.getByLabel("Plan in YAML").fill(yaml(plan));
  await page.getByRole("button", { name: "Create draft…" }).click();
  await expect(page.getByRole("heading", { name: plan.name, level: 1 })).toBeVisible();
  await expect(page.getByText("Hash", { exact: true })).toBeVisible();
}

async function start(page: Page, agents: number): Promise<void> {
  const words = agents === 1 ? "Start on 1 agent" : `Start on ${agents} agents`;
  await page.getByRole("button", { name: `${words}…` }).click();
  await page.getByRole("dialog").getByLabel("Reason").fill("it is Tuesday");
  await page.getByRole("dialog").getByRole("button", { name: words, exact: true }).click();
  await expect(page.getByRole("region", { name: "Progress" })).toBeVisible();
}

const target = (page: Page, host: string) => page.getByRole("region", { name: "Targets" }).getByRole("row").filter({ has: page.getByRole("link", { name: host, exact: true }) });

test("without rollouts the page explains them and shows the guard rails", async ({ page }) => {
  await open(page, "/rollouts", "none");
  await expect(page.getByText("No rollout yet")).toBeVisible();
  await expect(page.getByText("No limit: a plan alone decides")).toBeVisible();
  await expectAccessibleInBoth(page, "no rollouts");
});

test("errors of a plan are shown at their lines, the browser's and the server's", async ({ page }) => {
  await open(page, "/rollouts/new");
  const editor = page.getByLabel("Plan in YAML");
  const preview = page.getByRole("button", { name: "Preview", exact: true });
  await expect(editor).toHaveValue(/kind: canary/);
  await editor.fill("name: Spring\nversion: 1.1.0\nname: Summer\n");
  await expect(page.getByRole("alert")).toContainText(/Line 3: .*unique/);
  await expect(preview).toBeDisabled();
  await expect(preview).toHaveAccessibleDescription("The plan has 1 error, listed below it.");
  await editor.fill(yaml({ name: "Spring", version: "1.1.0", strategy: "{ kind: sideways }" }));
  await preview.click();
  await expect(page.getByRole("alert")).toContainText("want rolling, canary, all_at_once, rings or lockstep");
  await page.getByRole("button", { name: "Line 4" }).click();
  await expect(editor).toBeFocused();
  await expectAccessibleInBoth(page, "a plan with a fault");
  await editor.fill(yaml({ name: "Spring", version: "1.1.0", strategy: "{ kind: rolling, batch_size: 4 }" }));
  await preview.click();
  const left = page.getByRole("region", { name: /^Left out/ });
  await expect(page.getByText("agents would be upgraded")).toBeVisible();
  await left.getByRole("button", { name: /Cannot be upgraded/ }).click();
  await expect(left.getByRole("listitem")).toContainText("It cannot be upgraded from here");
  await expectAccessibleInBoth(page, "a preview beside its plan");
  await editor.press("End");
  await editor.pressSequentially(" ");
  await expect(page.getByText("The plan was changed after this preview.")).toBeVisible();
});

test("a canary rollout is previewed, started exactly as previewed, approved, and completes", async ({ page }) => {
  const complaints = watchComplaints(page);
  await draft(page, { name: "Web to 1.1.0", version: "1.1.0", strategy: "{ kind: canary, canary: { size: 1, approval: true }, batch_size: 2 }", select: "{ labels: { site: [web] } }" });
  await expectAccessibleInBoth(page, "a draft");
  await start(page, 3);
  const approve = page.getByRole("button", { name: "Approve…" });
  await expect(approve).toHaveAccessibleDescription("Its canaries are not done yet.");
  await expect(page.getByRole("group", { name: "Phases of the agents in flight" })).toBeVisible();
  await expectAccessibleInBoth(page, "a board on the move");
  await expect(page.getByRole("region", { name: "Waiting for" })).toContainText("Needs approval", { timeout: 30_000 });
  await approve.click();
  await page.getByRole("dialog").getByLabel("Reason").fill("web-03 looks fine");
  await page.getByRole("dialog").getByRole("button", { name: "Approve the rest" }).click();
  await expect(page.getByTitle("State: completed")).toBeVisible({ timeout: 40_000 });
  await expect(page.getByLabel("Targets by state").getByText("3 upgraded")).toBeVisible();
  await expect(page.getByRole("region", { name: "Audit trail" })).toContainText("web-03 looks fine");
  await expect(page.getByRole("button", { name: "Pause…" })).toHaveAccessibleDescription("It is completed.");
  expect(complaints).toEqual([]);
});

test("too many failures pause it and withdraw open offers; resuming needs a reason", async ({ page }) => {
  await draft(page, { name: "Prod to 1.2.0", version: "1.2.0", strategy: "{ kind: rolling, batch_size: 9 }", select: "{ policies: [default], exclude: { site: [db, build] } }", failures: 2 });
  await start(page, 6);
  const first = target(page, "web-01");
  await first.getByRole("link").click();
  await expect(page.getByText("includes this agent. Until it ends, only the rollout can upgrade the agent")).toBeVisible();
  await expect(page.getByRole("button", { name: "Upgrade…" })).toHaveAccessibleDescription(/The rollout “Prod to 1.2.0” includes it/);
  const why = page.getByRole("region", { name: "Why (not)?" });
  await expect(why).toContainText(/web-01 runs 1\.[01]\.0 and not 1\.2\.0/);
  await expectAccessibleInBoth(page, "an agent of a rollout");
  await page.getByRole("link", { name: "Prod to 1.2.0", exact: true }).click();

  await expect(page.getByText("Paused: too many failures").first()).toBeVisible({ timeout: 40_000 });
  await expect(page.getByText(/[1-9]\d* offers? (was|were) withdrawn/)).toBeVisible();
  await expect(page.getByText(/^[2-9] failed, pauses at 2$/)).toBeVisible();
  await expectAccessibleInBoth(page, "a stopped rollout");

  await page.getByRole("combobox", { name: "State" }).click();
  await page.getByRole("option", { name: /^Withdrawn/ }).click();
  await expect(page).toHaveURL(/state=withdrawn/);
  const withdrawn = page.getByRole("region", { name: "Targets" }).getByRole("rowheader");
  await expect(withdrawn).not.toHaveCount(0);
  await page.getByRole("combobox", { name: "State" }).click();
  await page.getByRole("option", { name: /^Rolled back/ }).click();
  await page.getByRole("button", { name: /^Retry / }).first().click();
  await expect(page.getByRole("dialog", { name: /^Retry .*\?$/ })).toBeVisible();
  await page.keyboard.press("Escape");

  await page.getByRole("button", { name: "Resume…" }).click();
  const dialog = page.getByRole("dialog");
  const confirm = dialog.getByRole("button", { name: "Resume rollout" });
  await expect(confirm).toBeDisabled();
  await expect(confirm).toHaveAccessibleDescription(/Give a reason/);
  await expectAccessibleInBoth(page, "the question before resuming");
  await dialog.getByLabel("Reason").fill("those two hosts are known");
  await expect(confirm).toBeEnabled();
  await dialog.getByRole("button", { name: "Dismiss" }).click();
  await page.getByRole("button", { name: "Cancel…" }).click();
  await expect(dialog).toContainText("Nothing more is offered.");
  await dialog.getByRole("button", { name: "Cancel rollout" }).click();
  await expect(page.getByTitle("State: cancelled")).toBeVisible({ timeout: 30_000 });
});

test("a pause at once shows how many offers it withdraws, and upgraded targets can be rolled back", async ({ page }) => {
  await draft(page, { name: "Edge and db", version: "1.1.0", strategy: "{ kind: all_at_once }", select: "{ labels: { site: [api, cache] } }" });
  await start(page, 2);
  await expect(page.getByRole("button", { name: "Force…" })).toBeEnabled();
  await page.getByRole("button", { name: "Pause…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("radio", { name: "Pause at once" }).check();
  await expect(dialog.getByRole("status")).toContainText(/Nothing more is offered\. \d+ offers? that ha(s|ve) not started (is|are) withdrawn|No offer is open/);
  await dialog.getByRole("button", { name: "Pause at once" }).click();
  await expect(page.getByTitle("State: paused")).toBeVisible();
  await page.getByRole("button", { name: "Resume…" }).click();
  await dialog.getByRole("button", { name: "Resume rollout" }).click();
  await expect(page.getByTitle(/State: (completed|running)/)).toBeVisible();
});

test("a fleet that has changed since the preview refuses the start, shows how, and asks again", async ({ page }) => {
  await draft(page, { name: "Db to 1.3.0", version: "1.3.0", strategy: "{ kind: all_at_once }", select: "{ labels: { site: [db, build] } }" });
  const list = await page.request.get(at("/api/fleet/agents"));
  const agents = ((await list.json()) as { items: { id: string; local_metadata: { host: { hostname: string } } }[] }).items;
  const db = agents.find((a) => a.local_metadata.host.hostname === "db-01")!;
  await page.request.post(at(`/api/fleet/agents/${db.id}/unenroll`), { headers: { "kbn-xsrf": "test" }, data: {} });
  await page.getByRole("button", { name: /^Start on 3 agents…/ }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: "Start on 3 agents" }).click();
  await expect(dialog).toContainText("The fleet has changed since the preview: 1 agent removed");
  await expect(dialog).toContainText("db-01");
  const confirm = dialog.getByRole("button", { name: "Start on the current fleet: 2 agents" });
  await expect(confirm).toBeDisabled();
  await expectAccessibleInBoth(page, "a refused start");
  await dialog.getByRole("checkbox", { name: /accept it/ }).check();
  await confirm.click();
  await expect(page.getByText(/started on 2 agents/)).toBeVisible();
});

test("an incident is counted beside the agents and in the tab, acknowledged and resolved", async ({ page }) => {
  await open(page, "/agents");
  await page.getByRole("main").getByRole("link", { name: /1 ?Open incident/ }).click();
  const card = page.getByRole("listitem", { name: /edge-fra-01 has been silent/ });
  await expect(card).toContainText("Recovery plan.");
  await expect(page.getByRole("navigation").getByRole("link", { name: /Incidents.* 1 open/ })).toBeVisible();
  await expectAccessibleInBoth(page, "the incidents");
  await card.getByRole("button", { name: "Acknowledge…" }).click();
  await page.getByRole("dialog").getByLabel("Reason").fill("on my way");
  await page.getByRole("dialog").getByRole("button", { name: "Acknowledge" }).click();
  await expect(card).toContainText("on my way");
  await expect(page.getByRole("navigation").getByRole("link", { name: "Incidents", exact: true })).toBeVisible();
  await card.getByRole("button", { name: "Resolve…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Resolve" }).click();
  await expect(card.getByRole("button", { name: "Resolve…" })).toHaveAccessibleDescription("It is resolved already.");
});

test("guard rails are set with a form, and apply to every plan", async ({ page }) => {
  await open(page, "/rollouts");
  const panel = page.getByRole("region", { name: "Exposure limit" });
  await panel.getByRole("button", { name: "Change…" }).click();
  const dialog = page.getByRole("dialog", { name: "Exposure limit" });
  await dialog.getByRole("switch", { name: "Limit how far a new version may spread" }).check();
  await dialog.getByLabel("Percent of the fleet").fill("200");
  await expect(dialog.getByRole("button", { name: "Set limit" })).toBeDisabled();
  await dialog.getByLabel("Percent of the fleet").fill("25");
  await dialog.getByLabel("Within each value of a label").fill("site 50");
  await expectAccessibleInBoth(page, "the form of the exposure limit");
  await dialog.getByRole("button", { name: "Set limit" }).click();
  await expect(panel).toContainText("At most 25 % of the fleet and 50 % of each site");

  const freezes = page.getByRole("region", { name: "Freeze calendar" });
  const add = freezes.getByRole("button", { name: "Add freeze" });
  await expect(add).toHaveAccessibleDescription("Enter a name.");
  await freezes.getByLabel("Freeze", { exact: true }).fill("Quarter end");
  await freezes.getByLabel("From").fill("2099-03-30T00:00");
  await freezes.getByLabel("To").fill("2099-04-02T00:00");
  await add.click();
  await expect(freezes.getByRole("rowheader", { name: /^Quarter end/ })).toBeVisible();
  await expectAccessibleInBoth(page, "the rollouts page");
  await freezes.getByRole("button", { name: "Remove Quarter end" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Remove freeze" }).click();
  await expect(freezes.getByText("No freeze is planned.")).toBeVisible();
});

test("the list is filtered by state, in the address", async ({ page }) => {
  await open(page, "/rollouts");
  const all = page.getByRole("list", { name: "Rollouts" }).getByRole("listitem");
  await expect(all.first()).toBeVisible();
  await page.getByRole("group", { name: "Filter by state" }).getByRole("button", { name: /^Cancelled/ }).click();
  await expect(page).toHaveURL(/state=/);
  await page.reload();
  await expect(all.first()).toContainText("Cancelled");
  await expect(page.getByTitle("State: completed")).toHaveCount(0);
});

test("the pages of rollouts fit a telephone, and an unknown rollout is reported", async ({ page }) => {
  await page.setViewportSize({ width: 400, height: 800 });
  await open(page, "/rollouts");
  const first = page.getByRole("list", { name: "Rollouts" }).getByRole("link").first();
  await expect(first).toBeVisible();
  await expectNoSidewaysScroll(page);
  await first.click();
  await expect(page.getByRole("region", { name: "Audit trail" })).toBeVisible();
  await expectNoSidewaysScroll(page);
  await open(page, "/rollouts/new");
  await page.getByRole("button", { name: "Preview", exact: true }).click();
  await expect(page.getByText(/agents? would be upgraded/)).toBeVisible();
  await expectNoSidewaysScroll(page);
  await open(page, "/incidents");
  await expect(page.getByRole("heading", { name: "Incidents" })).toBeVisible();
  await expectNoSidewaysScroll(page);
  await open(page, "/rollouts/nothing");
  await expect(page.getByText("There is no such rollout")).toBeVisible();
});
