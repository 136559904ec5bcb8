import { expect, test } from "vitest";
import type { RollbackPreview, RollbackPreviewItem } from "~/api/types";
import { agent } from "~/testing/agent";
import { whyNotRollback } from "./allowed";
import { backTo, confirmText, limit, whyNotGoBack } from "./rollback";
import { exact } from "./time";

const until = "2026-01-09T12:00:00Z";

function preview(...to: (string | null)[]): RollbackPreview {
  const items: RollbackPreviewItem[] = to.map((v, i) => ({ agent_id: `a${i}`, hostname: `web-${i}`, version: "1.1.0", will: v !== null, to: v ?? undefined }));
  return { will: items.filter((i) => i.will).length, wont: items.filter((i) => !i.will).length, items };
}

test("an agent shows the version of its rollback, or why there is none", () => {
  const kept = agent({ rollback: { available: true, version: "1.0.0", valid_until: until } });
  expect([backTo(kept), whyNotRollback(kept)]).toEqual([`1.0.0, until ${exact(until)}`, null]);
  const watched = agent({ rollback: { available: true, version: "1.0.0" } });
  expect(backTo(watched)).toBe("1.0.0, while the upgrade is watched");
  const bare = agent({ rollback: { available: false, reason: "upgrade rollback not available for agent" } });
  expect([backTo(bare), whyNotRollback(bare)]).toEqual(["no version", "Upgrade rollback not available for agent."]);
  expect(whyNotRollback(agent())).toMatch(/does not report/);
});

test.each([
  [undefined, 3, "Roll back 3 agents"],
  [preview("1.0.0"), 1, "Roll back 1 agent to 1.0.0"],
  [preview("1.0.0", "1.0.0", null), 3, "Roll back 2 agents to 1.0.0"],
  [preview("1.0.0", "0.9.0"), 2, "Roll back 2 agents"],
  [preview(null), 1, "Roll back 0 agents"],
] as [RollbackPreview | undefined, number, string][])("%o of %i agents is confirmed as %s", (p, n, want) => {
  expect(confirmText(p, n)).toBe(want);
});

test("the button is disabled without a preview, or if no agent can be rolled back", () => {
  expect(whyNotGoBack(undefined, null)).toMatch(/Loading the preview/);
  expect(whyNotGoBack(undefined, new Error("x"))).toMatch(/The preview failed/);
  expect(whyNotGoBack(preview(null), null)).toMatch(/None of these/);
  expect(whyNotGoBack(preview("1.0.0", null), null)).toBeNull();
});

test("without a time the watch is the limit", () => {
  expect(limit()).toBe("while the upgrade is watched");
});
