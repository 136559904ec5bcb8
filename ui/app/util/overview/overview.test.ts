import { expect, test } from "vitest";
import { share, sitesOf } from "./overview";

test("a share does not say all while one is missing, or none while one is there", () => {
  expect(share(99_999, 100_000)).toBe("99.9 %");
  expect(share(100_000, 100_000)).toBe("100 %");
  expect(share(1, 100_000)).toBe("0.1 %");
  expect(share(2, 3)).toBe("66.7 %");
  expect(share(0, 0)).toBe("–");
});

test("the site with the largest share of hosts that are not well comes first", () => {
  const sites = sitesOf({
    field: "site",
    other: 0,
    values: [
      { value: "fra", count: 10, kuery: "site: fra", health: { healthy: 10 } },
      { value: "sin", count: 4, kuery: "site: sin", health: { healthy: 2, offline: 2 } },
    ],
  });
  expect(sites.map((s) => s.site)).toEqual(["sin", "fra"]);
  expect(sites[0]!.health).toEqual([
    ["healthy", 2],
    ["offline", 2],
  ]);
});
