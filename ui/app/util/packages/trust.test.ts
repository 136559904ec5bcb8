import { expect, test } from "vitest";
import type { Trust } from "~/api/types";
import { expiryOf, onlineExpiryOf, recipesFor, thresholdText } from "./trust";

const now = Date.parse("2026-01-01T00:00:00Z");

test("what expires within 30 days is amber, what has expired red", () => {
  expect(expiryOf("2026-04-01T00:00:00Z", now)).toEqual({ tone: "ok", text: "Expires in 90 days" });
  expect(expiryOf("2026-01-31T00:00:00Z", now).tone).toBe("wait");
  expect(expiryOf("2026-01-01T03:00:00Z", now)).toEqual({ tone: "wait", text: "Expires in 3 h" });
  expect(expiryOf("2025-12-31T00:00:00Z", now)).toEqual({ tone: "bad", text: "Expired" });
  expect(onlineExpiryOf("2026-01-02T00:00:00Z", now).tone).toBe("ok");
});

const role = (threshold: number, signed: boolean[]) => ({
  file: "4.targets.json",
  version: 4,
  expires: "2026-04-01T00:00:00Z",
  threshold,
  keys: signed.map((s, i) => ({ id: `${i}`, name: "", public_key: "", signed: s })),
});

test("the commands are those for the trust in use", () => {
  const trust: Trust = { published: true, target_count: 3, online_keys: [], warnings: [], targets: role(2, [true, true, false]) };
  expect(thresholdText(trust.targets!)).toBe("2 of 3 must sign, 2 have signed");
  expect(recipesFor(trust)[0]!.text).toContain("muster package keys sign release/5.targets.json");
  expect(recipesFor({ ...trust, targets: role(1, [true]) })[0]!.text).not.toContain("sign release");
  expect(recipesFor({ ...trust, published: false })[0]!.text).toContain("keys init");
});
