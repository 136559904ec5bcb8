import { expect, test } from "vitest";
import type { AttentionItem } from "~/api/types";
import { placeOf } from "./attention";

const item = (kind: AttentionItem["kind"], subject?: string): AttentionItem => ({ kind, subject, severity: "warning", text: "x." });

test("an approval leads to its rollout, and failures lead to the hosts", () => {
  expect(placeOf(item("approval", "r1"))).toEqual({ to: "/rollouts/$rolloutId", params: { rolloutId: "r1" }, verb: "Review" });
  expect(placeOf(item("failures")).search).toEqual({ progress: ["failed", "rolled_back"] });
});

test("a kind of a newer server leads to the servers", () => {
  expect(placeOf(item("moon" as AttentionItem["kind"])).to).toBe("/servers");
});
