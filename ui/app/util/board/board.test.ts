import { expect, test } from "vitest";
import type { Batch, Counts } from "~/api/types";
import { counts, rollout, target } from "~/testing/rollout";
import {
  batchLine,
  batchNameOf,
  canaryShares,
  committedPercent,
  committedText,
  doneText,
  endText,
  outcomeText,
  ownReason,
  percentText,
  rateText,
  restText,
  targetSince,
} from "./board";

const at = "2026-01-02T10:00:00Z";
const batch = (index: number, kind: Batch["kind"], change: Partial<Counts>, ended = false): Batch => ({
  index,
  kind,
  ring: 0,
  counts: counts(change),
  cleared_at: ended ? at : undefined,
});

test("the batch under way is numbered from one", () => {
  const batches = [batch(0, "canary", { succeeded: 2 }, true), batch(1, "regular", { pending: 3 }), batch(2, "regular", { pending: 3 })];
  expect(batchLine(rollout({ batches }))).toBe("Batch 2 of 3");
  expect(batchLine(rollout({ batches, ended_at: at }))).toBeUndefined();
  expect(batchLine(rollout())).toBeUndefined();
});

test.each<[number | undefined, string | undefined]>([
  [undefined, undefined],
  [0, undefined],
  [1_240.3, "1,240/min"],
  [38.2, "38/min"],
  [1.52, "1.5/min"],
  [2, "2/min"],
  [0.5, "30/h"],
  [0.001, "1/h"],
])("a rate of %s is %s", (rate, text) => expect(rateText(rate)).toBe(text));

test("the end has a day if it is not today", () => {
  const now = new Date(2026, 0, 2, 12).getTime();
  const pace = (d: Date) => ({ done: 1, total: 2, done_about: d.toISOString() });
  expect(doneText(pace(new Date(2026, 0, 2, 16, 40)), now, "en-GB")).toBe("done about 16:40");
  expect(doneText(pace(new Date(2026, 0, 4, 9, 5)), now, "en-GB")).toBe("done about Sun 09:05");
  expect(doneText(pace(new Date(2026, 1, 4, 9, 5)), now, "en-GB")).toBe("done about 4 Feb");
  expect(doneText({ done: 1, total: 2 }, now)).toBeUndefined();
});

test("the end of a rollout in one sentence", () => {
  expect(endText(rollout())).toBeUndefined();
  const ended = { started_at: "2026-01-02T10:00:00Z", ended_at: "2026-01-02T12:03:00Z" };
  expect(endText(rollout({ ...ended, state: "completed", counts: { succeeded: 28 } }))).toBe("All 28 hosts run 1.1.0. It took 2 h 3 min.");
  expect(outcomeText(rollout({ counts: { succeeded: 20, failed: 3, rolled_back: 1, pending: 2, cancelled: 2 } }))).toBe(
    "20 of 28 hosts run 1.1.0, 1 was rolled back by its watcher, 3 failed, 4 keep their version",
  );
  expect(outcomeText(rollout({ counts: { succeeded: 20, failed: 1, skipped: 5, refused: 3 } }))).toBe(
    "20 of 26 hosts run 1.1.0, 1 failed, 3 could not be given it, 2 were skipped",
  );
  expect(outcomeText(rollout({ rollback_of: "r0", counts: { succeeded: 3 } }))).toBe("all 3 hosts are back at their last healthy version");
});

test("canaries are compared with the rest", () => {
  expect(canaryShares([batch(0, "regular", { succeeded: 1 })])).toBeUndefined();
  expect(canaryShares([batch(0, "canary", { succeeded: 1 })])).toBeUndefined();
  const [canaries, rest] = canaryShares([batch(0, "canary", { succeeded: 3, failed: 1 }), batch(1, "regular", { pending: 5, rolled_back: 0 })])!;
  expect(canaries).toEqual({ label: "Canaries", total: 4, ended: 4, committed: 3, bad: 1, badPercent: 25 });
  expect(rest).toMatchObject({ total: 5, ended: 0, badPercent: undefined });
});

test.each([
  [undefined, "–"],
  [0, "0 %"],
  [2.04, "2 %"],
  [2.55, "2.5 %"],
  [12.6, "13 %"],
  [100, "100 %"],
])("%s percent is %s", (n, text) => expect(percentText(n)).toBe(text));

test("names and counts", () => {
  expect(batchNameOf({ index: 0, kind: "canary" })).toBe("Canaries");
  expect(batchNameOf({ index: 2, kind: "regular" })).toBe("Batch 3");
  const c = counts({ succeeded: 7, failed: 1, skipped: 1, upgrading: 2, pending: 3 });
  expect(committedText(c)).toBe("7 of 14 hosts committed");
  expect(restText(c)).toBe("1 failed, 2 under way, 3 to go, 1 left out");
  expect(restText(counts({ skipped: 3, refused: 2 }))).toBe("2 refused, 1 left out");
  expect(committedPercent(counts({ succeeded: 999, failed: 1 }))).toBe(99);
  expect(committedPercent(counts())).toBe(0);
});

test("since when a target is in its state", () => {
  const t = {
    ...target("upgrading"),
    offered_at: at,
    history: [
      { at, state: "offered" as const },
      { at: "2026-01-02T10:01:00Z", state: "upgrading" as const },
    ],
  };
  expect(targetSince(t)).toBe("2026-01-02T10:01:00Z");
  expect(targetSince(target("pending"))).toBeUndefined();
});

test("a reason that the state contains is left out", () => {
  const soak = rollout({ waiting: [{ code: "soak", text: "x", since: at }] });
  expect(ownReason({ ...target("pending"), code: "next" }, rollout())).toBe("");
  expect(ownReason({ ...target("pending"), code: "next" }, soak)).toBe("Soaking");
  expect(ownReason({ ...target("failed"), code: "crash_loop" }, soak)).toBe("Crash loop");
});
