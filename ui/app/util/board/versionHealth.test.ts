import { expect, test } from "vitest";
import { againstTheRest, hasBoth } from "./versionHealth";

const series = {
  versions: [
    { name: "2.5.0", values: [0, 4, 10], healthy: [0, 3, 10] },
    { name: "2.4.0", values: [80, 76, 70], healthy: [80, 75, 70] },
    { name: "", values: [20, 20, 20], healthy: [10, 10, 10] },
  ],
};

test("the healthy share of a version is set against that of all other hosts", () => {
  const [mine, rest] = againstTheRest(series, "2.5.0");
  expect(mine!.values).toEqual([null, 75, 100]);
  expect(rest!.values.map((v) => Math.round(v!))).toEqual([90, 89, 89]);
});

test("a version that nobody has run yet cannot be compared", () => {
  expect(hasBoth(againstTheRest(series, "2.5.0"))).toBe(true);
  expect(hasBoth(againstTheRest(series, "9.9.9"))).toBe(false);
});
