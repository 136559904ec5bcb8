import { expect, test } from "vitest";
import { parseGroup } from "~/util/plan/planYaml";
import { groupExample } from "./groupExample";
import { membersOf, readGroupForm, writeGroupForm, writeMemberVersion } from "./groupForm";

const text = groupExample("1.1.0");

test("a form that is written is read again, and comments stay", () => {
  const form = { name: "Autumn: all", description: "why", failurePolicy: "manual", acceptDrift: true };
  const next = writeGroupForm(text, form);
  expect(readGroupForm(next)).toEqual(form);
  for (const comment of text.split("\n").filter((l) => /^\s*#/.test(l))) expect(next).toContain(comment);
});

test("the version of a member is set in its place", () => {
  const next = writeMemberVersion(text, "web", "2.0.0");
  expect(membersOf(parseGroup(next).plan).map((m) => [m.name, m.version])).toEqual([
    ["db", "1.1.0"],
    ["web", "2.0.0"],
  ]);
  expect(next.split("\n")).toHaveLength(text.split("\n").length);
});

test("half of a plan has no members yet", () => {
  expect(membersOf(parseGroup("name: x\nmembers: 3").plan)).toEqual([]);
  expect(readGroupForm("name: [")).toBeUndefined();
});
