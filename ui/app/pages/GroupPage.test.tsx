import { expect, test } from "vitest";
import type { GroupStatus } from "~/api/types";
import { group, stop } from "~/testing/group";
import { button, click, pages, type, until } from "~/testing/page";
import { counts } from "~/testing/rollout";

const page = pages();

function status(change: Partial<GroupStatus> = {}): GroupStatus {
  const g = group(change);
  return {
    ...g,
    waiting: "member web is being upgraded",
    commands: [
      { name: "pause", allowed: true, primary: true },
      { name: "skip", allowed: true, needs_reason: true },
      { name: "resume", allowed: false, reason: "it is running already" },
    ],
    progress: [
      { name: "db", state: g.members[0]!.state, version: "1.1.0", rollout_state: "completed", counts: counts({ succeeded: 4 }) },
      { name: "web", state: g.members[1]!.state, version: "2.0.0", rollout_state: "running", counts: counts({ succeeded: 1, failed: 1, pending: 2 }) },
    ],
    ...change,
  };
}

test("the board shows the members in order, with their progress and what the group waits for", async () => {
  page.answers["/api/v1/rollout-groups/g1"] = { item: status() };
  await page.open("/groups/g1", "Members");
  const members = [...document.querySelectorAll("[aria-label='Members in their order'] tbody tr")].map((tr) => tr.textContent);
  expect(members).toHaveLength(2);
  expect(members[0]).toContain("1. db");
  expect(members[0]).toContain("100 % of 4 hosts done");
  expect(members[1]).toContain("50 % of 4 hosts done");
  expect(members[1]).toContain("1 failed");
  expect(document.body.textContent).toContain("Member web is being upgraded.");
  expect(button("Pause…")).toBeTruthy();
  await click(button("More"));
  expect(document.querySelector("[role=menu]")!.textContent).toContain("it is running already");
});

test("after a failure the member that failed is left out with a reason", async () => {
  const members = [group().members[0]!, { ...group().members[1]!, state: "failed" as const, error: "its rollout was cancelled" }];
  page.answers["/api/v1/rollout-groups/g1"] = { item: status({ ...stop("failure", "web"), members }) };
  page.answers["/api/v1/rollout-groups/g1/skip"] = { item: group() };
  await page.open("/groups/g1", "A member failed: web");
  expect(document.body.textContent).toContain("3 of 5 failed.");
  await click(button("More"));
  await click([...document.querySelectorAll<HTMLElement>("[role=menuitem]")].find((i) => i.textContent === "Leave a member out…")!);
  const dialog = document.querySelector("[role=dialog]")!;
  expect(button("Leave it out", dialog).getAttribute("aria-disabled")).toBe("true");
  const reason = dialog.querySelector("textarea")!;
  await type(reason, "broken disk");
  await click(button("Leave it out", dialog));
  await until(() => page.sent.length > 0, "the command");
  expect(page.sent).toEqual([{ path: "/api/v1/rollout-groups/g1/skip", body: { why: "broken disk", member: "web" } }]);
});

test("a draft is started exactly as previewed", async () => {
  page.answers["/api/v1/rollout-groups/g1"] = {
    item: status({
      state: "draft",
      commands: [{ name: "start", allowed: true, primary: true }],
      members: group().members.map((m) => ({ name: m.name, state: "pending" as const })),
    }),
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
        warnings: name === "db" ? ["it is old"] : [],
      })),
    },
  };
  page.answers["/api/v1/rollout-groups/g1/start"] = { item: group() };
  page.answers["/api/fleet/agents"] = { items: [], total: 400 };
  await page.open("/groups/g1", "Upgrade 6 hosts…");
  expect(document.body.textContent).toContain("db: it is old");
  await click(button("Upgrade 6 hosts…"));
  await click(button("Start the group", document.querySelector("[role=dialog]")!));
  await until(() => page.sent.some((s) => s.path.endsWith("/start")), "the start");
  expect(page.sent.find((s) => s.path.endsWith("/start"))?.body).toEqual({ hash: "sha256:abc" });
});

test("the list shows each group with its members, or how to create one", async () => {
  page.answers["/api/v1/rollout-groups"] = { items: [group(stop("drift", "web"))], total: 1, page: 1, perPage: 100 };
  await page.open("/groups", "Autumn");
  const card = document.querySelector("[aria-label='Groups'] tbody tr")!;
  expect(card.textContent).toContain("1 of 2");
  expect(card.textContent).toContain("The fleet is not as previewed");
  expect(card.querySelector("a")!.getAttribute("href")).toBe("/groups/g1");
});

test("an unknown group says so", async () => {
  await page.open("/groups/none", "There is no such group");
});
