import { expect, test } from "vitest";
import type { RollbackPreview, RollbackPreviewItem } from "~/api/types";
import { agent } from "~/testing/agent";
import { exact } from "~/util/time";
import { confirmText, limit, whyNotGoBack, withForward } from "./rollback";

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

test("a rollback that goes forward has another verb", () => {
  expect(confirmText(preview("1.2.0"), 1, true)).toBe("Move 1 host to 1.2.0");
});

test.each([
  ["1.2.0", false, "forward", true],
  ["0.9.0", false, "rollback", false], // refused for another reason
  ["0.9.0", true, "rollback", true],
  [undefined, false, "rollback", false],
] as [string | undefined, boolean, string, boolean][])("a host on 1.0.0 that keeps %s, allowed %s, has the command %s", (version, allowed, name, possible) => {
  const commands = [
    { name: "upgrade", allowed: true },
    { name: "rollback", allowed, danger: true },
  ];
  expect(withForward(agent({ commands, rollback: { available: version !== undefined, version } }))).toMatchObject([
    { name: "upgrade" },
    { name, allowed: possible, danger: true },
  ]);
});

test("the button is disabled without a preview, or if no agent can be rolled back", () => {
  expect(whyNotGoBack(undefined, null)).toMatch(/The preview is being read/);
  expect(whyNotGoBack(undefined, new Error("x"))).toMatch(/The preview could not be read/);
  expect(whyNotGoBack(preview(null), null)).toMatch(/None of these/);
  expect(whyNotGoBack(preview("1.0.0", null), null)).toBeNull();
});
