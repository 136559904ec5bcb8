import { expect, test, vi } from "vitest";
import { group } from "~/testing/group";
import { button, click, pages, refusal, until } from "~/testing/page";
import { writeYaml, yamlText } from "~/testing/yaml";
import "./NewGroupPage"; // the router loads it only when it is opened, which takes longer than a test waits

vi.setConfig({ testTimeout: 20_000 });
const page = pages();
const EDITOR = "Plan in YAML";
const fault = () => document.querySelector("[role=alert]")?.textContent ?? "";

const plan = `name: Autumn
failure_policy: manual
desired_versions: { db: 1.1.0 }
members:
  - name: db
    plan:
      strategy: { kind: rolling }
`;

test("the example is complete, and a missing failure policy is found without the server", async () => {
  await page.open("/groups/new", "Create group");
  expect(await yamlText(EDITOR)).toContain("failure_policy: rollback_all");
  expect(button("Save as draft").getAttribute("aria-disabled")).toBeNull();
  await writeYaml(EDITOR, plan.replace("failure_policy: manual\n", ""));
  expect(document.body.textContent).toContain("Still missing: the failure policy.");
  expect(button("Save as draft").getAttribute("aria-disabled")).toBe("true");
  expect(page.sent.filter((s) => s.path !== "/api/v1/rollout_preview")).toEqual([]);
});

test("an error of the server is shown at the member it names", async () => {
  page.answers["/api/v1/rollout-groups"] = refusal(400, "[request body.plan.members[0].plan.select]: is empty: name agents");
  await page.open("/groups/new", "Create group");
  await writeYaml(EDITOR, plan);
  await click(button("Save as draft"));
  await until(() => fault() !== "", "the error");
  expect(fault()).toContain("Line 6: ");
  expect(fault()).toContain("members[0].plan.select");
});

test("a plan becomes a draft, whose board shows its preview", async () => {
  const draft = group({ state: "draft", members: group().members.map((m) => ({ name: m.name, state: "pending" as const })) });
  page.answers["/api/v1/rollout-groups"] = { item: draft };
  page.answers["/api/v1/rollout-groups/g1"] = {
    item: { ...draft, commands: [{ name: "start", allowed: true, primary: true }], progress: draft.members.map((m) => ({ ...m, version: "1.1.0" })) },
  };
  page.answers["/api/v1/rollout-groups/g1/preview"] = {
    item: {
      group_id: "g1",
      hash: "sha256:abc",
      at: "2026-01-02T10:00:00Z",
      at_least: "1h0m0s",
      estimate: "2h0m0s",
      members: ["db", "web"].map((name) => ({
        name,
        version: "1",
        hash: "h",
        targets: 3,
        skipped: 1,
        batches: 2,
        offline: 0,
        at_least: "1h0m0s",
        estimate: "2h0m0s",
        warnings: [],
      })),
    },
  };
  await page.open("/groups/new", "Create group");
  await writeYaml(EDITOR, plan);
  await click(button("Save as draft"));
  await until(() => !!button("Upgrade 6 hosts…"), "the preview of the draft");
  expect(page.sent.find((s) => s.path === "/api/v1/rollout-groups")).toMatchObject({
    path: "/api/v1/rollout-groups",
    body: { plan: { failure_policy: "manual", desired_versions: { db: "1.1.0" }, members: [{ name: "db" }] } },
  });
});
