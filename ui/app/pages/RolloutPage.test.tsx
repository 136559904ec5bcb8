import { beforeAll, expect, test, vi } from "vitest";
import type { Batch, Rollout } from "~/api/types";
import { button, click, pages, type, until } from "~/testing/page";
import { rollout, target } from "~/testing/rollout";

// The router loads the page when it is opened, which takes longer than a test waits on a busy machine.
vi.setConfig({ testTimeout: 20_000, hookTimeout: 60_000 });
beforeAll(async () => void (await import("./RolloutPage")));

const page = pages();
const at = "2026-01-02T10:00:00Z";

const canary: Batch = { index: 0, kind: "canary", ring: 0, started_at: at, ended_at: at, counts: rollout({ counts: { succeeded: 1, failed: 1 } }).counts };
const rest: Batch = { index: 1, kind: "regular", ring: 0, counts: rollout({ counts: { pending: 3 } }).counts };

function answer(change: Partial<Rollout> = {}) {
  const r: Rollout = {
    ...rollout({ plan: { strategy: { kind: "canary", canary: { approval: true } } }, counts: { succeeded: 1, failed: 1, pending: 3 } }),
    started_at: at,
    started_by: "ann",
    batches: [canary, rest],
    waiting: [{ code: "approval", text: "an operator must approve the rest", since: at }],
    would_stop: "1 of 3 failures so far: 2 more pause it.",
    pace: { done: 2, total: 5 },
    causes: [{ code: "crash_loop", text: "It ended 3 times in 60 s.", state: "failed", count: 1 }],
    commands: [
      { name: "approve", allowed: true, primary: true, needs_reason: true, warning: "1 of 2 canaries failed. All batches after them get the same version." },
      { name: "start", allowed: false, reason: "It has been started already." },
      { name: "retry_targets", allowed: true },
      { name: "skip", allowed: true },
    ],
    ...change,
  };
  page.answers["/api/v1/rollouts/r1"] = { item: r };
  page.answers["/api/v1/rollouts/r1/approve"] = { item: r };
  page.answers["/api/v1/audit"] = {
    items: [{ id: "e", at, actor: "ann", verb: "rollout.start", subject: "r1", text: "ann started it", why: "CHG-1" }],
    total: 1,
    page: 1,
    perPage: 100,
  };
  page.answers["/api/v1/rollouts/r1/grid"] = {
    generation: 1,
    agent_ids: ["a1", "a2"],
    hostnames: ["web-01", "web-02"],
    batches: [0, 0],
    states: ["failed", "succeeded"],
    progress: ["failed", "committed"],
  };
  page.answers["/api/v1/rollouts/r1/targets"] = {
    items: [
      {
        ...target("failed"),
        code: "crash_loop",
        error: "ended 3 times",
        commands: [
          { name: "retry", allowed: true },
          { name: "skip", allowed: false, reason: "It is left out already." },
        ],
      },
    ],
    total: 1,
    page: 1,
    perPage: 50,
  };
}

test("the board says where the rollout is, what it waits for, and what would stop it", async () => {
  answer();
  await page.open("/rollouts/r1", "1 of 3 failures so far");
  const text = document.body.textContent!;
  for (const part of ["Waiting", "Batch 1 of 2", "Needs approval", "1 of 5 hosts committed", "Failures by cause: 1 host", "Canaries", "CHG-1"])
    expect(text).toContain(part);
  await until(() => document.body.textContent!.includes("Crash loop: ended 3 times."), "the reason of a host");
});

test("approving after failed canaries shows the warning and needs a reason", async () => {
  answer();
  await page.open("/rollouts/r1", "Needs approval");
  await click(button("Approve…"));
  await until(() => document.body.textContent!.includes("1 of 2 canaries failed."), "the warning");
  expect(button("Approve 3 hosts").getAttribute("aria-disabled")).toBe("true");
  await click(button("Approve 3 hosts"));
  expect(page.sent).toEqual([]);
  await type(document.querySelector("textarea:not([aria-hidden])")!, "the canary had no disk");
  await click(button("Approve 3 hosts"));
  await until(() => page.sent.length === 1, "the order");
  expect(page.sent[0]).toEqual({ path: "/api/v1/rollouts/r1/approve", body: { why: "the canary had no disk" } });
});

test("a rollout gets other limits, and what was not changed stays as it is", async () => {
  const plan = { ...rollout().plan, limits: { max_parallel: 500, per: [{ label: "rack", max: 2 }] }, failure: { count: 3 }, health: { wait: "10m0s" } };
  answer({ plan, commands: [{ name: "adjust", allowed: true }] });
  page.answers["/api/v1/rollouts/r1/adjust"] = { item: rollout() };
  await page.open("/rollouts/r1", "Needs approval");
  await click(button("More"));
  await until(() => !!document.querySelector("[role=menuitem]"), "the menu");
  await click(document.querySelector<HTMLElement>("[role=menuitem]")!);
  await until(() => document.body.textContent!.includes("Adjust the limits of “Spring”?"), "the form");
  const dialog = document.querySelector("[role=dialog]")!;
  const field = (label: string) => [...dialog.querySelectorAll("label")].find((l) => l.textContent === label)!.parentElement!.querySelector("input")!;
  expect(button("Adjust limits", dialog).getAttribute("aria-disabled")).toBe("true");
  await type(field("At one time, at most"), "many");
  expect(dialog.textContent).toContain("want a whole number");
  await type(field("At one time, at most"), "10");
  await type(field("Wait between batches"), "5m");
  await click(button("Adjust limits", dialog));
  await until(() => page.sent.length === 1, "the order");
  expect(page.sent[0]).toEqual({
    path: "/api/v1/rollouts/r1/adjust",
    body: { limits: { max_parallel: 10, per: [{ label: "rack", max: 2 }] }, pace: { soak: "5m" } },
  });
});

test("a rollout is cancelled at once from its menu", async () => {
  answer({ commands: [{ name: "cancel_now", allowed: true, danger: true, warning: "It waits for the health of no host any more." }] });
  page.answers["/api/v1/rollouts/r1/cancel"] = { item: rollout() };
  await page.open("/rollouts/r1", "Needs approval");
  await click(button("More"));
  await until(() => !!document.querySelector("[role=menuitem]"), "the menu");
  expect([...document.querySelectorAll("[role=menuitem]")].map((m) => m.textContent)).toEqual(["Cancel at once…"]);
  await click(document.querySelector<HTMLElement>("[role=menuitem]")!);
  await until(() => document.body.textContent!.includes("It waits for the health of no host any more."), "the warning");
  await click(button("Cancel at once", document.querySelector("[role=dialog]")!));
  await until(() => page.sent.length === 1, "the order");
  expect(page.sent[0]).toEqual({ path: "/api/v1/rollouts/r1/cancel", body: { now: true } });
});

test("the menu of a host has what the server allows for it", async () => {
  answer();
  await page.open("/rollouts/r1", "Crash loop: ended 3 times.");
  await click(button("Actions for web-01"));
  await until(() => document.body.textContent!.includes("It is left out already."), "the menu");
  await click([...document.querySelectorAll<HTMLElement>("[role=menuitem]")].find((m) => m.textContent === "Retry this host…")!);
  await until(() => !!button("Retry 1 host"), "the question");
});

test("a rollout that has ended says how", async () => {
  answer({ state: "failed", ended_at: "2026-01-02T10:30:00Z", waiting: undefined, commands: [] });
  await page.open("/rollouts/r1", "1 of 5 hosts run 1.1.0, 1 failed, 3 keep their version. It took 30 min.");
});

test("what failed in a rollout that has ended is tried again by a draft", async () => {
  answer({ state: "failed", ended_at: "2026-01-02T10:30:00Z", waiting: undefined, commands: [] });
  page.answers["/api/v1/rollouts"] = { item: { ...rollout({ state: "draft", plan: { name: "again: Spring" } }), id: "r2" } };
  page.answers["/api/v1/rollouts/r2"] = page.answers["/api/v1/rollouts"];
  await page.open("/rollouts/r1", "1 of 5 hosts run 1.1.0");
  await click(button("Try what failed again…"));
  await until(() => document.body.textContent!.includes("Try 1 host again?"), "the question");
  await click(button("Draft the rollout"));
  await until(() => window.location.pathname === "/rollouts/r2", "the draft");
  expect(page.sent).toContainEqual({ path: "/api/v1/rollouts", body: { from: "r1", failed: true } });
});

test("the filters of the address are chips, and each goes away by itself", async () => {
  answer();
  await page.open("/rollouts/r1?state=%5B%22failed%22%5D&code=crash_loop&host=a1", "Host web-01");
  await click(button("Remove the filter Host web-01"));
  await until(() => !window.location.search.includes("host="), "the address without the host");
  expect(button("Remove the filter Failed")).toBeTruthy();
  expect(button("Remove the filter Cause: Crash loop")).toBeTruthy();
});

test("a rollout that does not exist keeps the page", async () => {
  await page.open("/rollouts/r9", "There is no such rollout");
});
