// Fleets as an operator uses them: found, explained, changed after a review, taken over and resumed.
import { expect, test, type Page } from "@playwright/test";
import { expectAccessible, expectNoSidewaysScroll, watchComplaints } from "./checks";
import { PORTS } from "./playwright.mock.config";

const at = (path: string, fleet: keyof typeof PORTS = "fleets") => `http://localhost:${PORTS[fleet]}${path}`;
const shots = process.env.MUSTER_UI_ARTIFACTS;

async function open(page: Page, path: string, fleet: keyof typeof PORTS = "fleets"): Promise<void> {
  await page.context().addCookies([{ name: "muster_session", value: "mock", url: at("/", fleet) }]);
  await page.goto(at(path, fleet));
}

/** Both schemes: a colour that is readable on white may be unreadable on black. Only colours differ. */
async function expectAccessibleInBoth(page: Page, what: string): Promise<void> {
  const shot = async (scheme: string) => { if (shots) await page.screenshot({ path: `${shots}/${what.replaceAll(" ", "-")}-${scheme}.png`, fullPage: true }); };
  await expectAccessible(page, `${what}, light`);
  await shot("light");
  await page.emulateMedia({ colorScheme: "dark" });
  await expectAccessible(page, `${what}, dark`, ["color-contrast"]);
  await shot("dark");
  await page.emulateMedia({ colorScheme: "light" });
}

const editor = (page: Page) => page.getByLabel("Fleet in YAML");
const object = (name: string, version: string, select = "{ policies: [spring] }") =>
  `apiVersion: muster.dev/v1alpha2\nkind: Fleet\nmetadata: { name: ${name} }\nspec:\n  selector: ${select}\n  agent: { version: ${version} }\n  strategy: { kind: rolling }\n`;

test("without fleets the page explains them", async ({ page }) => {
  await open(page, "/fleets", "none");
  await expect(page.getByText("No fleet yet")).toBeVisible();
  await expectAccessibleInBoth(page, "no fleets");
  await page.getByRole("link", { name: "Create the first one" }).click();
  await expect(page.getByRole("heading", { name: "New fleet", level: 1 })).toBeVisible();
});

test("the list shows versions, hash, rollout and conditions, and is filtered by labels in the address", async ({ page }) => {
  await open(page, "/fleets");
  const rows = page.getByRole("region", { name: "Fleets" }).getByRole("row").filter({ has: page.getByRole("rowheader") });
  await expect(rows).toHaveCount(4);
  const web = rows.filter({ has: page.getByRole("link", { name: "web", exact: true }) });
  await expect(web).toContainText("Not ready");
  await expect(web).toContainText("1.0.0 (5)");
  await expect(web).toContainText("Stalled");
  await expect(web.getByRole("link", { name: "Rollout of web: running" })).toBeVisible();
  await expectAccessibleInBoth(page, "the fleets");
  await page.getByLabel("Labels").fill("team=db");
  await page.keyboard.press("Enter");
  await expect(rows).toHaveCount(1);
  await expect(page).toHaveURL(/labels=team%3Ddb/);
  await page.goBack();
  await expect(rows).toHaveCount(4);
  await rows.getByRole("link", { name: "edge", exact: true }).click();
  await expect(page.getByRole("heading", { name: "edge", level: 1 })).toBeVisible();
  await expect(page.getByText("Why is it not rolling out?")).toHaveCount(0);
  await expect(page.getByRole("button", { name: "Force promotion…" })).toHaveAccessibleDescription("Its rollout is completed.");
});

test("a fleet says why it is not rolling out, and its promotion is forced by typing its name", async ({ page }) => {
  const complaints = watchComplaints(page);
  await open(page, "/fleets/web");
  const why = page.getByRole("region", { name: "Why is it not rolling out?" });
  await expect(why).toContainText("Its rollout of the agents to 1.1.0 waits: the canaries are healthy, and an operator must approve the other batches.");
  await expect(why).toContainText("Approve the rollout, or force its promotion.");
  await expect(page.getByRole("region", { name: "Conditions" }).getByRole("row", { name: /Stalled/ })).toContainText("WaitsForApproval");
  await expect(page.getByRole("list", { name: "History, newest first" })).toContainText("gitops");
  await expectAccessibleInBoth(page, "a fleet that waits");
  await page.getByRole("button", { name: "Force promotion…" }).click();
  const dialog = page.getByRole("dialog", { name: "Force the promotion of web?" });
  const confirm = dialog.getByRole("button", { name: "Force promotion on 6 agents" });
  await expect(confirm).toHaveAccessibleDescription("Type web to continue.");
  await expectAccessibleInBoth(page, "the question before a promotion");
  await dialog.getByLabel("Type web to confirm").fill("web");
  await dialog.getByLabel("Reason").fill("the canary is fine");
  await confirm.click();
  await expect(page.getByText("The promotion of web is forced")).toBeVisible();
  await expect(page.getByRole("list", { name: "History, newest first" })).toContainText("spec.forcePromote");
  await expect(page.getByRole("button", { name: "Force promotion…" })).toHaveAccessibleDescription("Its promotion is forced already.");
  expect(complaints).toEqual([]);
});

test("errors are shown at their lines, all at once", async ({ page }) => {
  await open(page, "/fleets/-new");
  await expect(editor(page)).toHaveValue(/kind: Fleet/);
  const review = page.getByRole("button", { name: "Review changes" });
  await editor(page).fill("apiVersion: muster.dev/v1alpha2\nkind: Fleet\nmetadata: {}\nspec:\n  selector: { all: true }\n");
  await expect(page.getByRole("alert")).toContainText("Line 3: metadata.name is missing: name the fleet.");
  await expect(review).toHaveAccessibleDescription("The fleet has 1 error, listed below it.");
  await editor(page).fill(`${object("spring", "1.1.0").replace("rolling", "sideways")}  pacce: { soak: 1h }\n`);
  await review.click();
  await expect(page.getByRole("alert")).toContainText("Line 7: spec.strategy.kind is");
  await expect(page.getByRole("alert")).toContainText("Line 8: spec.pacce is not a known field.");
  await page.getByRole("button", { name: "Line 8" }).click();
  await expect(editor(page)).toBeFocused();
  await expectAccessibleInBoth(page, "a fleet with errors");
});

test("a fleet is created and changed, each after a review of exactly that text", async ({ page }) => {
  await open(page, "/fleets/-new");
  await editor(page).fill(object("spring", "1.1.0"));
  await page.getByRole("button", { name: "Review changes" }).click();
  await expect(page.getByRole("region", { name: "What would happen" })).toContainText("Starts a rollout");
  await expect(page.getByRole("region", { name: "Preview of each part" }).getByRole("row", { name: /agent/ })).toContainText("1 h 30 min");
  await expectAccessibleInBoth(page, "the review of a new fleet");
  await editor(page).press("End");
  await editor(page).pressSequentially(" ");
  await expect(page.getByText("The text was changed after this review.")).toBeVisible();
  await expect(page.getByRole("button", { name: "Create and start the rollout" })).toHaveCount(0);
  await page.getByRole("button", { name: "Review again" }).click();
  await page.getByRole("button", { name: "Create and start the rollout" }).click();
  await expect(page).toHaveURL(/\/fleets\/spring$/);

  await page.getByRole("button", { name: "Edit…" }).click();
  await expect(page).toHaveURL(/edit=true/);
  await editor(page).fill(`${object("spring", "1.1.0")}  failure: { count: 2 }\n`);
  await page.getByRole("button", { name: "Review changes" }).click();
  const difference = page.getByLabel("Difference of the text");
  await expect(difference).toContainText("+   failure:");
  await expect(difference).not.toContainText("- ");
  await expect(page.getByRole("region", { name: "What would happen" })).toContainText("Starts no rollout");
  await expect(page.getByRole("region", { name: "What would happen" })).toContainText("stays");
  await page.getByLabel("Reason").fill("two are enough");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await expect(page.getByText("spring is saved")).toBeVisible();
  await expect(page.getByRole("list", { name: "History, newest first" })).toContainText("two are enough");
});

test("a change of somebody else is shown before it can be lost", async ({ page }) => {
  await open(page, "/fleets/cache?edit=true");
  const before = await editor(page).inputValue();
  await editor(page).fill(before.replace("1.2.0", "1.1.0"));
  await page.getByRole("button", { name: "Review changes" }).click();
  await expect(page.getByLabel("Difference of the text")).toContainText("+     version: 1.1.0");
  const theirs = (await (await page.request.get(at("/api/v1/fleets/cache"))).json()) as { spec: object };
  await page.request.put(at("/api/v1/fleets/cache"), { headers: { "kbn-xsrf": "test" }, data: { ...theirs, spec: { ...theirs.spec, limits: { max_parallel: 7 } } } });
  await page.getByRole("button", { name: "Save and start the rollout" }).click();
  await expect(page.getByRole("alert")).toContainText("Somebody else has changed this fleet");
  await expect(page.getByLabel("What somebody else changed")).toContainText("+   limits:");
  await expectAccessibleInBoth(page, "a change of somebody else");
  await page.getByRole("button", { name: "Keep my text and review it again" }).click();
  await expect(editor(page)).toHaveValue(/version: 1\.1\.0/);
  await page.getByRole("button", { name: "Review changes" }).click();
  await expect(page.getByLabel("Difference of the text")).toContainText("-   limits:");
  await page.getByRole("button", { name: "Save and start the rollout" }).click();
  await expect(page.getByText("cache is saved")).toBeVisible();
});

test("a suspended fleet is resumed, paused, unpaused and deleted by typing its name", async ({ page }) => {
  await open(page, "/fleets/db");
  await expect(page.getByText("Suspended: its agents were taken over")).toBeVisible();
  await expectAccessibleInBoth(page, "a suspended fleet");
  await page.getByRole("button", { name: "Resume…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Resume fleet" }).click();
  await expect(page.getByText("Suspended: its agents were taken over")).toHaveCount(0);
  await page.getByRole("button", { name: "Pause…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Pause fleet" }).click();
  await expect(page.getByRole("region", { name: "Why is it not rolling out?" })).toContainText("spec.paused is true");
  await page.getByRole("button", { name: "Unpause…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Unpause fleet" }).click();
  await expect(page.getByRole("button", { name: "Pause…" })).toBeVisible();
  await page.getByRole("button", { name: "Delete…" }).click();
  const dialog = page.getByRole("dialog", { name: "Delete db?" });
  await expect(dialog.getByRole("button", { name: /^Delete db, which has/ })).toBeDisabled();
  await dialog.getByLabel("Type db to confirm").fill("db");
  await dialog.getByRole("button", { name: /^Delete db, which has/ }).click();
  await expect(page).toHaveURL(/\/fleets$/);
  await open(page, "/fleets/db");
  await expect(page.getByText("There is no such fleet")).toBeVisible();
  await expect(page.getByRole("list", { name: "History, newest first" })).toContainText("deleted it");
});

test("an upgrade of an agent of a fleet takes the agent over by typing the name", async ({ page }) => {
  await open(page, "/agents");
  const list = (await (await page.request.get(at("/api/fleet/agents"))).json()) as { items: { id: string; local_metadata: { host: { hostname: string } } }[] };
  const agent = list.items.find((a) => a.local_metadata.host.hostname === "web-01")!;
  await page.request.post(at("/api/v1/fleets"), { headers: { "kbn-xsrf": "test" }, data: {
    apiVersion: "muster.dev/v1alpha2", kind: "Fleet", metadata: { name: "one" }, spec: { selector: { agents: [agent.id] }, agent: { version: "1.0.0" } },
  } });
  await open(page, `/agents/${agent.id}`);
  await page.getByRole("button", { name: "Upgrade…" }).click();
  const dialog = page.getByRole("dialog", { name: "Upgrade web-01" });
  await dialog.getByRole("checkbox", { name: "Force" }).check();
  await dialog.getByRole("button", { name: "Upgrade 1 agent" }).click();
  await expect(dialog).toContainText("1 agent belongs to the Fleet object one");
  const confirm = dialog.getByRole("button", { name: "Take over: Upgrade 1 agent" });
  await expect(confirm).toHaveAccessibleDescription("Type the name of the fleet to take its agents over.");
  await expectAccessibleInBoth(page, "an order that is refused");
  await dialog.getByLabel("To take the agents over, type the name of the fleet").fill("one");
  await confirm.click();
  await expect(dialog).toHaveCount(0);
  await open(page, "/fleets/one");
  await expect(page.getByText("Suspended: its agents were taken over")).toBeVisible();
});

test("the pages of fleets fit a telephone", async ({ page }) => {
  await page.setViewportSize({ width: 400, height: 800 });
  await open(page, "/fleets");
  await expect(page.getByRole("link", { name: "web", exact: true })).toBeVisible();
  await expectNoSidewaysScroll(page);
  await open(page, "/fleets/web");
  await expect(page.getByRole("region", { name: "History" })).toBeVisible();
  await expectNoSidewaysScroll(page);
  await open(page, "/fleets/web?edit=true");
  await page.getByRole("button", { name: "Review changes" }).click();
  await expect(page.getByText("Nothing differs from what is stored.")).toBeVisible();
  await expectNoSidewaysScroll(page);
});
