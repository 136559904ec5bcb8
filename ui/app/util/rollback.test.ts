import { expect, test } from "vitest";
import type { RollbackPreview, RollbackPreviewItem } from "~/api/types";
import { confirmText, limit, whyNotGoBack } from "./rollback";
import { exact } from "./time";

const until = "2026-01-09T12:00:00Z";

function preview(...to: (string | null)[]): RollbackPreview {
  const items: RollbackPreviewItem[] = to.map((v, i) => ({ agent_id: `a${i}`, hostname: `web-${i}`, version: "1.1.0", will: v !== null, to: v ?? undefined }));
  return { will: items.filter((i) => i.will).length, wont: items.filter((i) => !i.will).length, items };
}

test("a rollback is possible until a time, or while the upgrade is watched", () => {
  expect(limit(until)).toBe(`until ${exact(until)}`);
  expect(limit()).toBe("while the upgrade is watched");
});

test.each([
  [undefined, 3, "Roll back 3 hosts"],
  [preview("1.0.0"), 1, "Roll back 1 host to 1.0.0"],
  [preview("1.0.0", "1.0.0", null), 3, "Roll back 2 hosts to 1.0.0"],
  [preview("1.0.0", "0.9.0"), 2, "Roll back 2 hosts"],
  [preview(null), 1, "Roll back 0 hosts"],
] as [RollbackPreview | undefined, number, string][])("%o of %i agents is confirmed as %s", (p, n, want) => {
  expect(confirmText(p, n)).toBe(want);
});

test("the button is disabled without a preview, or if no agent can be rolled back", () => {
  expect(whyNotGoBack(undefined, null)).toMatch(/The preview is being read/);
  expect(whyNotGoBack(undefined, new Error("x"))).toMatch(/The preview could not be read/);
  expect(whyNotGoBack(preview(null), null)).toMatch(/None of these/);
  expect(whyNotGoBack(preview("1.0.0", null), null)).toBeNull();
});

