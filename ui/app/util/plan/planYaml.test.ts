import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { groupExample } from "~/util/group/groupExample";
import { planExample } from "./planExample";
import { lineOf, MAX_PLAN_CHARS, parseGroup, parsePlan, planText, serverFault } from "./planYaml";

const plan = `name: Spring
version: 1.1.0
select: { all: true }
strategy:
  kind: rolling
limits:
  per:
    - label: site
      max: 2
`;

test("a plan is parsed as YAML, and its version stays a string", () => {
  expect(parsePlan(plan)).toEqual({
    faults: [],
    plan: { name: "Spring", version: "1.1.0", select: { all: true }, strategy: { kind: "rolling" }, limits: { per: [{ label: "site", max: 2 }] } },
  });
});

test("the first plan lacks only what the operator has to choose", () => {
  expect(parsePlan(planExample({})).faults.map((f) => [f.field, f.missing])).toEqual([
    ["name", true],
    ["version", true],
    ["select", true],
  ]);
  expect(parsePlan(planExample({ version: "1.1.0" })).faults.map((f) => f.field)).toEqual(["select"]);
  for (const version of ["2.0.0-rc1", "1.10", "null"]) {
    const { plan, faults } = parsePlan(planExample({ version, component: "web", kuery: 'version: "1.0.0"' }));
    expect(faults).toEqual([]);
    expect(plan).toMatchObject({ name: `web to ${version}`, component: "web", version, select: { kuery: 'version: "1.0.0"' } });
  }
  expect(parsePlan(planExample({ version: "1.1.0", agents: ["a", "b"] })).plan?.select).toEqual({ agents: ["a", "b"] });
});

test("wrong names, types and words are found at once, each at its line", () => {
  const { faults } = parsePlan(
    "name: a\nversion: 1.10\nselect: { all: true }\nstrategy:\n  kind: canery\n  batch_sise: 2\nfailure: { count: few }\npace:\n  windows:\n    - { day: [mon], from: 22:00, to: 4 }\n",
  );
  expect(faults.map((f) => `${f.line} ${f.text}`)).toEqual([
    '2 version is 1.1, want text: put it in quotes, "1.10".',
    "5 strategy.kind is “canery”, want rolling, canary, all_at_once, rings or lockstep.",
    "6 strategy.batch_sise is not a known key: did you mean batch_size.",
    "7 failure.count is “few”, want a whole number.",
    "10 pace.windows[0].day is not a known key: did you mean days.",
    '10 pace.windows[0].to is 4, want text: put it in quotes, "4".',
  ]);
});

test("the schemas are those of the API", () => {
  const made = execFileSync(process.execPath, ["generatePlanSchema.mjs", "--print"], { encoding: "utf8" });
  expect(readFileSync("app/api/__generated__/planSchema.ts", "utf8"), "run `npm run generate`").toBe(made);
}, 30_000); // a process, which parses all of the API's document

test.each([
  ["name: a\n  version: 2", 1, /[Nn]ested|implicit|multiline/i],
  ["name: a\nname: b\nselect: {all: true}", 2, /unique/],
  ["- a list", 1, /list of names and values/],
  ["", 1, /list of names and values/],
  ["name: [unclosed", 1, /./],
])("%j has its error at line %i", (text, line, words) => {
  const { faults, plan: none } = parsePlan(text);
  expect(none).toBeUndefined();
  expect(faults[0]!.line).toBe(line);
  expect(faults[0]!.text).toMatch(words);
});

test("missing required keys are found without the server", () => {
  expect(parsePlan("description: nothing else").faults.map((f) => f.field)).toEqual(["name", "version", "select", "strategy"]);
  expect(parsePlan("name: a\nversion: 1.1.0\nselect: {}\nstrategy: {kind: rolling}").faults.map((f) => f.field)).toEqual(["select"]);
  expect(parsePlan("name: a\nprofile: edge\nupgrade_id: x\nselect: {all: true}\nstrategy: {kind: rolling}").faults).toEqual([]);
});

test.each([
  ['body.plan.strategy.kind is "slow": want rolling', 5, "strategy.kind"],
  ["body.plan.strategy.canary.size is 0", 4, "strategy.canary.size"],
  ["body.plan.limits.per[0].max must be positive", 9, "limits.per[0].max"],
  ["body.plan.select is empty: name agents", 3, "select"],
  ["body.plan.pace.soak is negative", 0, "pace.soak"],
  ["the server is full", 0, ""],
])("the server's %j is located at line %i", (message, line, field) => {
  expect(serverFault(plan, message)).toEqual({ line, field, text: message });
});

test("a plan that is too long, or whose aliases expand too far, is refused", () => {
  expect(parsePlan("#".repeat(MAX_PLAN_CHARS + 1)).faults[0]!.text).toMatch(/too long/);
  const bomb = ["a: &a [x, x, x, x, x, x, x, x, x]", ...[..."bcdefgh"].map((c, i) => `${c}: &${c} [${Array(9).fill(`*${"abcdefgh"[i]}`).join(", ")}]`)].join(
    "\n",
  );
  expect(parsePlan(bomb).faults[0]!.text).toMatch(/alias/i);
});

test("a plan of the server is written as YAML and parsed to the same plan", () => {
  const server = {
    name: "10m0s",
    version: "1.1.0",
    select: { all: true },
    strategy: { kind: "rolling" as const },
    health: { wait: "10m0s", stale_after: "1h0m5s" },
    pace: { soak: "30s", wait_for: "168h0m0s", offer_for: "1h30m0s" },
  };
  const text = planText(server);
  expect(parsePlan(text).plan).toEqual({
    ...server,
    health: { wait: "10m", stale_after: "1h0m5s" },
    pace: { soak: "30s", wait_for: "168h", offer_for: "1h30m" },
  });
});

test("an absent field is located at its nearest parent", () => {
  expect(lineOf(plan, "strategy.batch_size")).toBe(4);
  expect(lineOf(plan, "nowhere")).toBe(0);
});

const group = `name: Autumn
failure_policy: manual
desired_versions: { db: 1.1.0, web: 1.2.0 }
members:
  - name: db
    plan:
      select: { policies: [db] }
      strategy: { kind: rolling }
  - name: web
    plan:
      strategy: { kind: sideways }
`;

test("the plan of a group keeps the order of its members, and its versions stay strings", () => {
  const { plan, faults } = parseGroup(group);
  expect(faults.map((f) => `${f.line} ${f.field}`)).toEqual(["11 members[1].plan.strategy.kind"]);
  expect(plan?.members.map((m) => m.name)).toEqual(["db", "web"]);
  expect(plan?.desired_versions).toEqual({ db: "1.1.0", web: "1.2.0" });
});

test("the example of a group is complete, for any version, and its commented keys are valid", () => {
  for (const version of [undefined, "2.0.0-rc1"]) expect(parseGroup(groupExample(version)).faults).toEqual([]);
  const all = groupExample("1.1.0").replace(/^( *)# (?=(description|component|accept_drift):)/gm, "$1");
  const { plan, faults } = parseGroup(all);
  expect(faults).toEqual([]);
  expect(plan).toMatchObject({ accept_drift: false, members: [{ name: "db", plan: { component: "db" } }, { name: "web" }] });
});

test("a group needs a failure policy, which has no default, versions and members", () => {
  expect(parseGroup("description: nothing else").faults.map((f) => f.field)).toEqual(["name", "failure_policy", "desired_versions", "members"]);
  const [fault] = parseGroup(group.replace("manual", "")).faults;
  expect(fault).toMatchObject({ line: 2, field: "failure_policy" });
  expect(fault!.text).toContain("There is no default");
});

test.each([
  ["[request body.plan.members[1].plan.select]: is empty", 10, "members[1].plan.select"],
  ['[request body.plan.members[1].plan.strategy.kind]: is "sideways"', 11, "members[1].plan.strategy.kind"],
  ["[request body.plan.desired_versions]: has no version for members[1], web: give one", 3, "desired_versions"],
  ['[request body.plan.members[0].name]: is "DB"', 5, "members[0].name"],
])("the server's %j about a group is located at line %i", (message, line, field) => {
  expect(serverFault(group, message)).toEqual({ line, field, text: message.replace(/^\[.*\]: /, `${field} `) });
});
