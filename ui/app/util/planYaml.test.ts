import { expect, test } from "vitest";
import { lineOf, MAX_PLAN_CHARS, parseGroup, parsePlan, planText, serverFault } from "./planYaml";
import { groupExample } from "./groupExample";
import { planExample } from "./planExample";

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

test("the example plan is complete, for any version", () => {
  for (const version of [undefined, "2.0.0-rc1"]) expect(parsePlan(planExample(version)).faults).toEqual([]);
});

test("the commented keys of the example are valid YAML", () => {
  const all = planExample("1.1.0").split("\n").map((l) => l.replace(/^(\s*)# (?=[a-z_]+:|  [a-z_]+:)/, "$1")).join("\n");
  const { faults, plan: whole } = parsePlan(all);
  expect(faults).toEqual([]);
  expect(Object.keys(whole ?? {})).toEqual(expect.arrayContaining(["description", "source_version", "profile", "migration"]));
});

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
  expect(parsePlan("description: nothing else").faults.map((f) => f.field)).toEqual(["name", "version", "select"]);
  expect(parsePlan("name: a\nversion: 1.1.0\nselect: {}").faults.map((f) => f.field)).toEqual(["select"]);
  expect(parsePlan("name: a\nprofile: edge\nupgrade_id: x\nselect: {all: true}").faults).toEqual([]);
});

test.each([
  ["body.plan.strategy.kind is \"slow\": want rolling", 5, "strategy.kind"],
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
  const bomb = ["a: &a [x, x, x, x, x, x, x, x, x]", ...[..."bcdefgh"].map((c, i) => `${c}: &${c} [${Array(9).fill(`*${"abcdefgh"[i]}`).join(", ")}]`)].join("\n");
  expect(parsePlan(bomb).faults[0]!.text).toMatch(/alias/i);
});

test("a plan of the server is written as YAML and parsed to the same plan", () => {
  const server = { name: "10m0s", version: "1.1.0", select: { all: true }, strategy: { kind: "rolling" as const }, health: { wait: "10m0s", stale_after: "1h0m5s" }, pace: { soak: "30s", wait_for: "168h0m0s", offer_for: "1h30m0s" } };
  const text = planText(server);
  expect(parsePlan(text).plan).toEqual({ ...server, health: { wait: "10m", stale_after: "1h0m5s" }, pace: { soak: "30s", wait_for: "168h", offer_for: "1h30m" } });
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
  expect(faults).toEqual([]);
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
  ["[request body.plan.members[1].plan.strategy.kind]: is \"sideways\"", 11, "members[1].plan.strategy.kind"],
  ["[request body.plan.desired_versions]: has no version for members[1], web: give one", 3, "desired_versions"],
  ["[request body.plan.members[0].name]: is \"DB\"", 5, "members[0].name"],
])("the server's %j about a group is located at line %i", (message, line, field) => {
  expect(serverFault(group, message)).toEqual({ line, field, text: message });
});
