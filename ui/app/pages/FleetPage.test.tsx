import { expect, test } from "vitest";
import { fleet, HASH } from "~/testing/fleet";
import { button, click, pages, refusal, until } from "~/testing/page";
import { writeYaml, yamlText } from "~/testing/yaml";

const page = pages();
const EDITOR = "Fleet in YAML";
const text = () => document.body.textContent ?? "";

function stored(f = fleet()) {
  page.answers["/api/v1/fleets/web"] = f;
  page.answers["/api/v1/fleets/web/commands"] = {
    items: [
      { name: "resume", allowed: false, reason: "It is not suspended." },
      { name: "pause", allowed: true },
      { name: "unpause", allowed: false, reason: "It is not paused." },
      { name: "promote", allowed: false, danger: true, reason: "Its rollout has ended." },
      { name: "delete", allowed: true, danger: true },
    ],
  };
  page.answers["/api/v1/fleets/web/history"] = {
    items: [
      {
        at: "2026-01-02T10:00:00Z",
        by: "gitops",
        action: "apply",
        text: "gitops changed it",
        generation: 2,
        hash: HASH,
        changed: ["spec.agent.version"],
        why: "spring",
        rollouts: [{ id: "r9", state: "completed" }],
      },
    ],
    total: 1,
  };
  return f;
}

test("the page shows status, conditions, versions and who changed which hash", async () => {
  stored(
    fleet({ rollout: { id: "r1", version: "1.1.0", state: "running", waiting: "it soaks" }, versions: { agent: { "1.0.0": 1, "1.1.0": 3 } } }, {}, [
      { type: "Ready", status: "False" },
    ]),
  );
  await page.open("/fleets/web", "gitops changed it");
  expect(text()).toContain("3 of 4 run it, 75 %");
  expect(text()).toContain("Its rollout of the agents to 1.1.0 waits: it soaks.");
  expect(document.querySelectorAll("[aria-label=Conditions] tbody tr")).toHaveLength(5);
  expect(text()).toContain("hash 6b86b273ff34…");
  expect(document.querySelector("a[aria-label='Rollout r9']")!.getAttribute("href")).toBe("/rollouts/r9");
});

test("the menu has the server's reasons", async () => {
  stored();
  await page.open("/fleets/web", "More");
  await click(button("More"));
  await until(() => text().includes("Its rollout has ended."), "the menu");
  expect([...document.querySelectorAll("[role=menuitem]")].map((m) => m.textContent)).toEqual([
    "Pause fleet…",
    "Resume fleet…Not possible now: It is not suspended.",
    "Delete fleet…",
    "Force promotion…Not possible now: Its rollout has ended.",
  ]);
});

test("what is saved has the version that was edited, and only after its review", async () => {
  const f = stored();
  page.answers["/api/v1/fleets/web/diff"] = {
    before: f,
    after: { ...f, spec: { ...f.spec, agent: { version: "1.2.0" } } },
    hashBefore: HASH,
    hashAfter: "ab".repeat(32),
    changed: ["spec.agent.version"],
    startsRollout: true,
    reason: "the rollout hash changes, because of spec.agent.version",
    previews: [{ part: "agent", version: "1.2.0", targets: 4, batches: 2, skipped: 1, error: "" }],
  };
  await page.open("/fleets/web?edit=true", "Review changes");
  await writeYaml(EDITOR, (await yamlText(EDITOR)).replace("1.1.0", "1.2.0"));
  expect(button("Save fleet and start its rollout")).toBeUndefined();
  await click(button("Review changes"));
  await until(() => !!button("Save fleet and start its rollout"), "the review");
  expect(document.querySelector("[aria-label='Difference of the text']")!.textContent).toContain("+     version: 1.2.0");
  await click(button("Save fleet and start its rollout"));
  await until(() => page.sent.some((s) => s.path === "/api/v1/fleets/web"), "the save");
  expect(page.sent.find((s) => s.path === "/api/v1/fleets/web")!.body).toMatchObject({
    metadata: { name: "web", uid: "u1", resourceVersion: "7" },
    spec: { agent: { version: "1.2.0" } },
  });
});

test("all errors of the server are shown at their lines", async () => {
  stored();
  page.answers["/api/v1/fleets/web/diff"] = refusal(400, "spec.agent.version is not a version\nspec.selector.policies[0] does not exist");
  await page.open("/fleets/web?edit=true", "Review changes");
  await click(button("Review changes"));
  await until(() => !!document.querySelector("[role=alert]"), "the errors");
  expect(document.querySelectorAll("[role=alert] li")).toHaveLength(2);
  expect(document.querySelector("[role=alert]")!.textContent).toContain("Line 12: spec.agent.version");
});

test("a fleet that is gone keeps its history", async () => {
  stored();
  delete page.answers["/api/v1/fleets/web"];
  await page.open("/fleets/web", "There is no such fleet");
  await until(() => text().includes("gitops changed it"), "the history");
});

test("the list has a row for each fleet, with a link to its rollout", async () => {
  page.answers["/api/v1/fleets"] = { apiVersion: "muster.dev/v1alpha2", kind: "FleetList", metadata: { total: 1 }, items: [fleet({}, { paused: true })] };
  await page.open("/fleets", "1.1.0 (4)");
  expect(text()).toContain("Paused");
  expect(document.querySelector("a[aria-label='Rollout of web: completed']")!.getAttribute("href")).toBe("/rollouts/fleet-web-1");
});
