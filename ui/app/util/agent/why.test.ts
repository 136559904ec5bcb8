import { expect, test } from "vitest";
import { chainOf } from "./why";

test("a reason that the summary contains is not repeated", () => {
  const chain = [
    { code: "threshold", text: "rollout “Edge” (o75yh537uuzqw6x273gyu5ck5y) is paused" },
    { code: "rolled_back", text: "it was rolled back: three crashes" },
    { code: "", text: "it waits", until: "2026-01-01T00:00:00Z" },
  ];
  expect(chainOf({ summary: "web-01 was not brought to 2.4.1: was rolled back: three crashes", chain }).map((c) => c.text)).toEqual([
    chain[0]!.text,
    "it waits",
  ]);
});
