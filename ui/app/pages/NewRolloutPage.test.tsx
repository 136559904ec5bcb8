import { act } from "react";
import { expect, test, vi } from "vitest";
import { button, click, pages, refusal, until } from "~/testing/page";
import { rollout } from "~/testing/rollout";
import { writeYaml, yamlText } from "~/testing/yaml";
import "./NewRolloutPage"; // the router loads it only when it is opened, which takes longer than a test waits

vi.setConfig({ testTimeout: 20_000 });
const page = pages();
const EDITOR = "Plan in YAML";
const text = () => document.body.textContent ?? "";
const field = (label: string) =>
  [...document.querySelectorAll<HTMLInputElement>("input")].find((i) => document.querySelector(`label[for="${i.id}"]`)?.textContent === label)!;

const preview = {
  hash: "sha256:abc",
  rollout_id: "",
  at: "2026-01-02T10:00:00Z",
  targets: [],
  skipped: [],
  target_count: 1800,
  skipped_count: 12,
  sites: [],
  offline: 0,
  at_least: "1h0m0s",
  estimate: "2h0m0s",
  warnings: [],
  batches: [{ index: 0, kind: "regular", ring: 0, size: 1800, offline: 0, start_at: "2026-01-02T10:00:00Z", end_at: "2026-01-02T12:00:00Z", share: 1 }],
  causes: [{ code: "failed_before", text: "It rolled this version back before.", count: 1, will: false, choice: "force", sample: ["web-3"] }],
};

async function write(input: HTMLInputElement, value: string): Promise<void> {
  await act(async () => {
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value")!.set!.call(input, value);
    input.dispatchEvent(new Event("input", { bubbles: true }));
  });
}

function open(search: string): Promise<void> {
  sessionStorage.clear();
  page.answers["/api/v1/rollout_preview"] ??= { item: preview };
  page.answers["/api/fleet/agents"] = { items: [], total: 2400 };
  page.answers["/api/v1/packages"] = { items: [] };
  page.answers["/api/v1/components"] = { items: [] };
  page.answers["/api/v1/agents/facets"] = { total: 0, facets: [] };
  return page.open(`/rollouts/new${search}`, "Create rollout");
}

test("nothing is chosen at first, and the whole fleet is a box with its number", async () => {
  await open("");
  await until(() => text().includes("Choose the whole fleet: 2,400 hosts"), "the number");
  expect(text()).toContain("Still missing: a name, the version and the hosts.");
  expect(button("Create and start…").getAttribute("aria-disabled")).toBe("true");
  const box = [...document.querySelectorAll<HTMLInputElement>("input[type=checkbox]")].find((b) =>
    b.closest("div")?.parentElement?.textContent?.includes("whole fleet"),
  )!;
  expect(box.checked).toBe(false);
  await click(box);
  expect(await yamlText(EDITOR)).toContain("all: true");
});

test("the form follows the text and the text the form", async () => {
  await open("?version=2.5.0&kuery=policy:%20web");
  expect(field("Name").value).toBe("Agents to 2.5.0");
  await write(field("Name"), "Spring");
  expect(await yamlText(EDITOR)).toMatch(/^name: Spring$/m);
  expect(await yamlText(EDITOR)).toContain("# Two hosts first");
  await writeYaml(EDITOR, (await yamlText(EDITOR)).replace("name: Spring", "name: Summer"));
  expect(field("Name").value).toBe("Summer");
});

test("the preview follows, offers what can be included, and its rollout is confirmed by typing", async () => {
  await open("?version=2.5.0&kuery=policy:%20web");
  await until(() => text().includes("1,800 hosts in 1 batch"), "the preview");
  await click(button("Include anyway"));
  expect(await yamlText(EDITOR)).toContain("force: true");
  await until(() => button("Create and start…").getAttribute("aria-disabled") === null, "the next preview");
  page.answers["/api/v1/rollouts"] = { item: rollout({ id: "r1", state: "draft" }) };
  page.answers["/api/v1/rollouts/r1/preview"] = { item: preview };
  page.answers["/api/v1/rollouts/r1/start"] = { item: rollout({ id: "r1" }) };
  await click(button("Create and start…"));
  const dialog = document.querySelector("[role=dialog]")!;
  expect(dialog.textContent).toContain("Upgrade 1,800 hosts to 2.5.0?");
  expect(button("Upgrade 1,800 hosts", dialog).getAttribute("aria-disabled")).toBe("true");
  await write(dialog.querySelector("input")!, "upgrade 1800");
  await click(button("Upgrade 1,800 hosts", dialog));
  await until(() => page.sent.some((s) => s.path.endsWith("/start")), "the start");
  expect(page.sent.find((s) => s.path.endsWith("/start"))!.body).toMatchObject({ hash: "sha256:abc" });
});

test("errors of the browser and of the server are shown together", async () => {
  page.answers["/api/v1/rollout_preview"] = refusal(400, "[request body.plan.failure.percent]: is 200, want at most 100");
  await open("?version=2.5.0&kuery=policy:%20web");
  await writeYaml(EDITOR, `${(await yamlText(EDITOR)).replace("count: 3", "percent: 200")}\npace: { soke: 1h }\n`);
  await until(() => document.querySelectorAll("[role=alert] li").length === 2, "both errors");
  expect(document.querySelector("[role=alert]")!.textContent).toContain("failure.percent is 200, want at most 100.");
  expect(document.querySelector("[role=alert]")!.textContent).toContain("pace.soke is not a known key: did you mean soak.");
  expect(text()).toContain("2 errors");
});
