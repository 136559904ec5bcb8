import { expect, test } from "vitest";
import { fleet } from "~/testing/fleet";
import { fleetExample } from "./fleetExample";
import { fleetFaults, fleetText, parseFleet } from "./fleetYaml";

test("the text has what users write, as it is stored, and means the same when it is read again", () => {
  const f = fleet({}, { health: { wait: "10m0s" } });
  const text = fleetText(f);
  expect(text).not.toMatch(/uid|resourceVersion|generation|status/);
  expect(text).toContain("wait: 10m0s");
  expect(parseFleet(text, "web")).toEqual({
    plan: { apiVersion: f.apiVersion, kind: "Fleet", metadata: { name: "web", labels: { team: "web" } }, spec: f.spec },
    faults: [],
  });
});

test("the example is complete", () => {
  const { plan, faults } = parseFleet(fleetExample("2.0.0"));
  expect(faults).toEqual([]);
  expect(plan).toMatchObject({ kind: "Fleet", spec: { agent: { version: "2.0.0" }, strategy: { kind: "canary", canary: { approval: true } } } });
});

test("what every fleet needs is found without the server", () => {
  expect(parseFleet("apiVersion: x\n").faults.map((f) => f.field)).toEqual(["kind", "metadata.name", "spec.selector"]);
  expect(parseFleet("- a\n").faults[0]!.text).toContain("A fleet is a list");
  expect(parseFleet(fleetText(fleet()), "db").faults).toMatchObject([{ line: 4, field: "metadata.name", text: expect.stringContaining("keeps its name") }]);
});

test("the server's errors are found at their fields, all of them", () => {
  const text =
    "apiVersion: x\nkind: Fleet\nmetadata:\n  name: web\nspec:\n  selector: { all: true }\n  components:\n    - name: db\n    - name: web\n      verion: 1\n";
  expect(
    fleetFaults(text, "spec.components[1].verion is not a known field: did you mean version?\nspec.strategy.kind is wrong\nthe object is too long"),
  ).toMatchObject([
    { line: 10, field: "spec.components[1].verion" },
    { line: 5, field: "spec.strategy.kind" },
    { line: 0, field: "" },
  ]);
});
