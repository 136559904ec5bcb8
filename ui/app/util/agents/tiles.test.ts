import { expect, it } from "vitest";
import { countIn, sameValues } from "./tiles";

it("counts a value, also one that no host has", () => {
  const facet = { field: "health", other: 0, values: [{ value: "healthy", count: 7, kuery: "health: healthy" }] };
  expect(countIn(facet, "healthy")).toBe(7);
  expect(countIn(facet, "offline")).toBe(0);
});

it("compares a filter with the values of a tile", () => {
  expect(sameValues(["rolled_back", "failed"], ["failed", "rolled_back"])).toBe(true);
  expect(sameValues(["failed"], ["failed", "rolled_back"])).toBe(false);
  expect(sameValues(undefined, ["failed"])).toBe(false);
});
