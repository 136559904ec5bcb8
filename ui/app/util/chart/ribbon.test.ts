import { expect, it } from "vitest";
import { ribbonParts, ribbonText, ribbonTotal } from "./ribbon";

it("names what is wrong, the worst first, and never rounds it away", () => {
  expect(ribbonText({ healthy: 9_999, failed: 1 })).toBe("99.9 % healthy, 1 failed");
  expect(ribbonText({ healthy: 8, offline: 1, degraded: 1 })).toBe("80 % healthy, 1 degraded, 1 offline");
  expect(ribbonText({ healthy: 3 })).toBe("100 % healthy");
  expect(ribbonText({})).toBe("No hosts");
});

it("has no empty parts, and failed hosts at the end with a hatch", () => {
  const parts = ribbonParts({ failed: 2, healthy: 5, degraded: 0, offline: 1 });
  expect(parts.map((p) => [p.health, p.hatched])).toEqual([
    ["healthy", false],
    ["offline", false],
    ["failed", true],
  ]);
  expect(ribbonTotal({ failed: 2, healthy: 5 })).toBe(7);
});
