import { expect, test } from "vitest";
import type { AuditEntry, Policy } from "~/api/types";
import { bodyOf, formOf, parseComponents, revisionsOf, revisionText, secondsText, settingsOf, settingsText, wantedOf, windowsText } from "./policy";

const policy: Policy = {
  id: "web",
  name: "Web servers",
  namespace: "default",
  inactivity_timeout: 1_209_600,
  is_managed: false,
  is_protected: false,
  revision: 3,
  status: "active",
  updated_at: "2026-01-02T10:00:00Z",
  updated_by: "ann",
  package_policies: [],
  agents: 118,
  components: [{ runtime: "systemd", name: "web", version: "2.4.0", lockstep: true, in_force: { version: "2.3.0" }, variables: { port: "8080" } }],
};

const entry = (revision: number, data: object, text = ""): AuditEntry => ({
  id: `${revision}`,
  at: "",
  actor: "ann",
  verb: "policy.update",
  subject: "web",
  text,
  data: { revision, ...data },
});

test("settings are written name first, without what the server sets", () => {
  expect(settingsText(settingsOf(policy))).toBe(`name: Web servers
inactivity_timeout: 1209600
components:
  - name: web
    runtime: systemd
    version: 2.4.0
    lockstep: true
    variables:
      port: "8080"
`);
});

test("the order of fields is no difference", () => {
  const checks = [{ name: "front", http: "http://localhost/" }];
  const as = (component: object) => settingsText({ ...settingsOf(policy), components: [component as never] });
  expect(as({ name: "web", runtime: "process", variables: { a: "1", b: "2" }, health: { wait_seconds: 1, checks } })).toBe(
    as({ health: { checks: [{ http: "http://localhost/", name: "front" }], wait_seconds: 1 }, variables: { b: "2", a: "1" }, runtime: "process", name: "web" }),
  );
});

test("revisions come from the audit trail, with the variables beside the components", () => {
  const [newest, old, huge] = revisionsOf([
    entry(3, { name: "Web", inactivity_timeout: 1, components: [{ name: "web", runtime: "systemd" }], variables: { web: { port: "1" } } }),
    entry(3, { name: "tried twice" }),
    entry(2, { name: "Web", inactivity_timeout: 2 }),
    entry(1, {}),
    { ...entry(0, {}), verb: "agent.upgrade" },
  ]);
  expect(newest!.settings!.components).toEqual([{ name: "web", runtime: "systemd", variables: { port: "1" } }]);
  expect(old!.number).toBe(2);
  expect(huge!.settings).toBeUndefined();
});

test("the text of a change leaves out who and which policy", () => {
  expect(revisionText(entry(2, {}, "ann changed the policy Web servers: inactivity_timeout, components"), "Web servers")).toBe(
    "inactivity timeout, components",
  );
  expect(revisionText(entry(1, {}, "ann created the policy Web servers"), "Web servers")).toBe("created");
});

test("a form that nobody has touched changes nothing", () => {
  const { settings, errors } = wantedOf(formOf(policy), policy);
  expect(errors).toEqual({});
  expect(settingsText(settings!)).toBe(settingsText(settingsOf(policy)));
  expect(bodyOf(settings!, policy)).toMatchObject({ name: "Web servers", namespace: "default", required_versions: null, components: [{ name: "web" }] });
  expect(bodyOf(settings!, { ...policy, is_managed: true }).force).toBe(true);
});

test("the windows of automatic upgrades are read, compared and sent", () => {
  const windows = [
    { days: ["mon", "tue"], from: "22:00", to: "04:00", zone: "Europe/Berlin" },
    { from: "05:00", to: "06:00" },
  ];
  const p = { ...policy, upgrade_windows: windows };
  expect(windowsText(p)).toBe("Mon, Tue 22:00–04:00 Europe/Berlin and every day 05:00–06:00 UTC");
  expect(windowsText(policy)).toBe("");
  const same = wantedOf(formOf(p), p).settings!;
  expect(settingsText(same)).toBe(settingsText(settingsOf(p)));
  expect(bodyOf(same, p).upgrade_windows).toEqual(windows);
  expect(bodyOf(wantedOf({ ...formOf(p), windows: [] }, p).settings!, p).upgrade_windows).toBeNull();
});

test("mistakes belong to their fields", () => {
  const form = {
    name: " ",
    description: "",
    inactiveHours: "x",
    required: [
      { version: "2.4.0", percentage: "60" },
      { version: "2.5.0", percentage: "many" },
    ],
    windows: [],
    components: "- runtime: systemd",
  };
  expect(wantedOf(form, policy).errors).toEqual({
    name: "A policy needs a name.",
    inactiveHours: "A number of hours, or nothing for never.",
    required: "A percentage is a number from 0 to 100.",
    components: "Component 1 has no name.",
  });
  expect(wantedOf({ ...form, required: [{ version: "", percentage: "60" }] }, policy).errors.required).toBe("Name a version in each line.");
});

test("components are a list, alone or as in the file of the command line", () => {
  const want = [{ name: "web", runtime: "process" }];
  expect(parseComponents("- name: web\n  runtime: process").components).toEqual(want);
  expect(parseComponents("# comment\ncomponents:\n  - {name: web, runtime: process}").components).toEqual(want);
  expect(parseComponents("- name: web\n  name: db").fault?.line).toBe(2);
  expect(parseComponents("name: web").fault?.text).toContain("list");
  expect(parseComponents("")).toEqual({ components: [] });
});

test("times of a policy are in their largest unit", () => {
  expect([secondsText(1_209_600), secondsText(86_400), secondsText(7200), secondsText(90)]).toEqual(["14 days", "1 day", "2 hours", "90 s"]);
});
