import { expect, test } from "vitest";
import { group, stop } from "~/testing/group";
import { doneOf, groupCommandText, hostsOf, previewText, skippable, whyNotStartGroup } from "./group";

const names = (g: ReturnType<typeof group>): string[] => skippable(g).map((m) => m.name);

test("a group that is rolled back only lets the member that stopped it out", () => {
  const rolling_back = { by: "muster", at: "2026-01-02T11:00:00Z" };
  const g = group({ ...stop("refused", "db"), rolling_back });
  expect(names(g)).toEqual(["db"]);
  expect(names(group({ state: "rolling_back", rolling_back }))).toEqual([]);
  expect(groupCommandText("skip", g).text).toContain("keeps its version");
});

test("a preview can be started if each member upgrades a host", () => {
  const member = (name: string, targets: number) => ({
    name,
    targets,
    version: "1",
    hash: "h",
    skipped: 0,
    batches: 1,
    offline: 0,
    at_least: "1m",
    estimate: "1m",
    warnings: [],
  });
  const preview = (...members: ReturnType<typeof member>[]) => ({
    group_id: "g1",
    hash: "h",
    at: "2026-01-02T10:00:00Z",
    at_least: "1m",
    estimate: "1m",
    members,
  });
  expect(whyNotStartGroup(undefined)).not.toBeNull();
  expect(whyNotStartGroup(preview(member("db", 1), member("web", 0)))).toContain("web");
  expect(whyNotStartGroup(preview(member("db", 1)))).toBeNull();
  expect(hostsOf(preview(member("db", 1), member("web", 1200)))).toBe(1201);
  expect(previewText(preview(member("db", 1), member("web", 1200)))).toBe("1,201 hosts in 2 members");
  expect(doneOf(group())).toBe(1);
});
