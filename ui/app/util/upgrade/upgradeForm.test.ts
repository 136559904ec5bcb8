import { expect, test } from "vitest";
import type { UpgradePreview } from "~/api/types";
import { defaultRollout, localNow, planUpgrade, questionOf, ROLLOUTS, type UpgradeForm, whyNotStart } from "./upgradeForm";

const now = Date.parse("2026-01-02T12:00:00Z");
const plain: UpgradeForm = {
  source: "",
  force: false,
  later: false,
  stage: false,
  startAt: "",
  rollout: 0,
  overrideFreeze: false,
  overrideExposure: false,
  inactive: false,
};

function preview(...will: boolean[]): UpgradePreview {
  const items = will.map((w, i) => ({ agent_id: `a${i}`, hostname: `web-${i}`, version: "1.0.0", will: w }));
  return { version: "1.1.0", will: will.filter(Boolean).length, wont: will.filter((w) => !w).length, items };
}

test("the button shows why it is disabled", () => {
  const why = (form: Partial<UpgradeForm>, version = "1.1.0", p: UpgradePreview | undefined = preview(true), error: unknown = null) =>
    whyNotStart({ ...plain, ...form }, version, p, error, now);
  expect(why({})).toBeNull();
  expect(why({}, "")).toMatch(/Choose a version/);
  expect(why({}, "latest")).toMatch(/not a version/);
  expect(why({ later: true })).toMatch(/Choose a start time/);
  expect(why({ later: true, startAt: localNow(now - 60_000) })).toMatch(/has passed/);
  expect(why({ later: true, startAt: localNow(now + 120_000) })).toBeNull();
  expect(why({}, "1.1.0", preview(false, false))).toMatch(/None of these hosts/);
  expect(why({}, "1.1.0", preview(true), new Error("x"))).toMatch(/The preview could not be read/);
  expect(whyNotStart(plain, "1.1.0", undefined, null, now)).toMatch(/The preview is being read/);
});

test("a guard rail that forbids the upgrade is overridden with a reason", () => {
  const frozen: UpgradePreview = { ...preview(true), refused: "the freeze “Christmas” forbids upgrades", guard: "freeze" };
  expect(whyNotStart(plain, "1.1.0", frozen, null, now)).toMatch(/freeze/);
  expect(whyNotStart(plain, "1.1.0", { ...frozen, guard: "exposure" }, null, now)).toMatch(/exposure budget/);
  const over = { ...plain, overrideFreeze: true };
  expect(whyNotStart(over, "1.1.0", preview(true), null, now)).toBeNull();
  expect(planUpgrade(over, preview(true), "exploited")).toMatchObject({ kind: "one", body: { override_freeze: true, why: "exploited" } });
});

test("a version is staged by a call of its own, without times and overrides", () => {
  const stage = { ...plain, stage: true, rollout: 3600 };
  expect(planUpgrade(stage, preview(true, false), "")).toEqual({
    kind: "stage",
    body: { agents: ["a0"], includeInactive: true, version: "1.1.0", force: false },
  });
  expect(planUpgrade(stage, preview(true), "", [], "web")).toMatchObject({ kind: "stage", body: { component: "web" } });
  expect(whyNotStart(stage, "1.1.0", preview(false), null, now)).toMatch(/None of these hosts would stage it/);
});

test("one agent without a time uses the call for one agent", () => {
  expect(planUpgrade({ ...plain, source: " https://p.example/ " }, preview(true, false), "")).toEqual({
    kind: "one",
    agentId: "a0",
    body: { version: "1.1.0", source_uri: "https://p.example/", force: false },
  });
});

test("several agents, or a scheduled one, use the bulk call with exactly the previewed agents", () => {
  expect(planUpgrade({ ...plain, force: true, rollout: 3600 }, preview(true, false, true), "")).toEqual({
    kind: "bulk",
    body: {
      agents: ["a0", "a2"],
      version: "1.1.0",
      source_uri: undefined,
      force: true,
      includeInactive: true,
      start_time: undefined,
      rollout_duration_seconds: 3600,
    },
  });
  const later = planUpgrade({ ...plain, later: true, startAt: localNow(now) }, preview(true), "");
  expect(later).toMatchObject({ kind: "bulk", body: { agents: ["a0"], start_time: "2026-01-02T12:00:00.000Z", rollout_duration_seconds: undefined } });
});

test("a large upgrade is spread by default, over times that the API accepts", () => {
  expect(defaultRollout(10)).toBe(0);
  expect(defaultRollout(11)).toBe(3600);
  expect(ROLLOUTS.map((r) => r.seconds)).toContain(3600);
  for (const { seconds } of ROLLOUTS) expect(seconds === 0 || seconds >= 600).toBe(true);
});

test("all matching agents are sent as their query, however few will be upgraded", () => {
  const matching = { kuery: "tags: a", inactive: false, count: 111 };
  expect(planUpgrade(plain, preview(true, false), "", matching)).toMatchObject({
    kind: "bulk",
    body: { agents: "tags: a", includeInactive: false, version: "1.1.0" },
  });
  expect(planUpgrade(plain, preview(true), "", { ...matching, inactive: true })).toMatchObject({
    kind: "bulk",
    body: { agents: "tags: a", includeInactive: true },
  });
});

test("the preview of all matching agents counts them and names none", () => {
  expect(questionOf(plain, "1.1.0", { kuery: "tag: a", inactive: false, count: 5 })).toMatchObject({
    agents: "tag: a",
    includeInactive: undefined,
    max_items: 0,
  });
  expect(questionOf({ ...plain, inactive: true }, "1.1.0", { kuery: "tag: a", inactive: false, count: 5 })).toMatchObject({ includeInactive: true });
  expect(questionOf(plain, "1.1.0", [])).toMatchObject({ agents: [], max_items: undefined });
});

test("an upgrade of a component names its agents, also a single one", () => {
  expect(planUpgrade({ ...plain, force: true }, preview(true, false), "", [], "web")).toEqual({
    kind: "component",
    component: "web",
    body: { agents: ["a0"], version: "1.1.0", force: true, includeInactive: true },
  });
});
