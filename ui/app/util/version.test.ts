import { expect, test } from "vitest";
import { compareVersions, isVersion, newest } from "./version";

test("versions are ordered as semver orders them", () => {
  const ordered = [
    "garbage",
    "0.9.0",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-rc.2",
    "1.0.0-rc.10",
    "1.0.0",
    "1.0.0+build.2",
    "1.0.0+build.10",
    "1.9.0",
    "1.10.0",
    "2.0.0-SNAPSHOT",
    "2.0.0",
  ];
  const shuffled = [...ordered].reverse();
  expect(shuffled.sort(compareVersions)).toEqual(ordered);
  for (const v of ordered) expect(compareVersions(v, v)).toBe(0);
});

test("the newest of a list is found whatever its order", () => {
  expect(newest(["1.9.0", "1.10.0", "1.2.0"])).toBe("1.10.0");
  expect(newest([])).toBeUndefined();
});

test.each([
  ["1.2.3", true],
  ["v1.2.3", true],
  ["1.2.3-SNAPSHOT+b1", true],
  ["1.2", false],
  ["latest", false],
  ["", false],
])("isVersion(%s) is %s", (text, want) => {
  expect(isVersion(text)).toBe(want);
});
