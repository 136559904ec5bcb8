import { expect, it } from "vitest";
import type { PreviewCause } from "~/api/types";
import { groupCauses, hostsText, verdictText } from "./causes";

const cause = (c: Partial<PreviewCause>): PreviewCause => ({ code: "x", text: "X.", count: 1, will: false, ...c });

it("groups causes by the choice that includes their hosts", () => {
  const groups = groupCauses([
    cause({ code: "newer", count: 97, choice: "force" }),
    cause({ code: "rollout", count: 33 }),
    cause({ code: "failed_before", count: 31, choice: "force" }),
    cause({ code: "inactive", count: 7, choice: "include_inactive" }),
    cause({ code: "offline", count: 39, will: true }),
    cause({ code: "fleet", count: 3, will: true, choice: "take_over" }),
  ]);
  expect(groups.choices.map((c) => [c.choice, c.count, c.causes.map((x) => x.code)])).toEqual([
    ["force", 128, ["newer", "failed_before"]],
    ["include_inactive", 7, ["inactive"]],
  ]);
  expect(groups.fixed.map((c) => c.code)).toEqual(["rollout"]);
  expect(groups.remarks.map((c) => c.code)).toEqual(["offline", "fleet"]);
  expect(groupCauses(undefined)).toEqual({ choices: [], fixed: [], remarks: [] });
});

it("a rollback that goes forward is a choice", () => {
  const groups = groupCauses([cause({ code: "forward", count: 2 }), cause({ code: "no_way_back" })]);
  expect(groups.choices.map((c) => [c.choice, c.count])).toEqual([["forward", 2]]);
  expect(groups.fixed.map((c) => c.code)).toEqual(["no_way_back"]);
});

it("names some hosts and counts the others", () => {
  expect(hostsText({ count: 2, sample: ["a", "b"] })).toBe("a, b");
  expect(hostsText({ count: 1300, sample: ["a", "b"] })).toBe("a, b and 1,298 more");
  expect(hostsText({ count: 3 })).toBe("");
});

it("says how many hosts an order changes", () => {
  expect(verdictText(1800, 0, "be upgraded")).toBe("All 1,800 hosts will be upgraded");
  expect(verdictText(1116, 161, "be upgraded")).toBe("1,116 of 1,277 hosts will be upgraded");
  expect(verdictText(0, 3, "be rolled back")).toBe("None of the 3 hosts will be rolled back");
  expect(verdictText(0, 1, "be upgraded")).toBe("The host will not be upgraded");
  expect(verdictText(1, 0, "be upgraded")).toBe("The host will be upgraded");
});
