import { expect, test } from "vitest";
import { pieces, withoutCommands, withoutIds } from "./prose";

test("ids beside a name are left out", () => {
  expect(withoutIds("rollout “Edge” (o75yh537uuzqw6x273gyu5ck5y) is paused")).toBe("rollout “Edge” is paused");
  expect(withoutIds("its upgrade to 1.3.0, ordered by ann (action oavi66zebnpjwepy2utorsuegm), was undone")).toBe(
    "its upgrade to 1.3.0, ordered by ann, was undone",
  );
  expect(withoutIds("it was upgraded from 2.3.0 to 2.4.0 by action 7aed0de7-3203-483f-83fc-bcb090bf4871")).toBe("it was upgraded from 2.3.0 to 2.4.0");
  expect(withoutIds("upgraded by action o75yh537uuzqw6x273gyu5ck5y-g1-1, and ended")).toBe("upgraded, and ended");
  expect(withoutIds("version 2.4.1 failed (crash loop)")).toBe("version 2.4.1 failed (crash loop)");
});

test("commands that the page has buttons for are left out", () => {
  expect(
    withoutCommands(
      "Make a rollout to 2.5.0 with `muster rollouts create --version 2.5.0`, or upgrade it by itself with `muster agents upgrade web-01 --version 2.5.0`.",
    ),
  ).toBe("Make a rollout to 2.5.0, or upgrade it by itself.");
});

test("code is set apart", () => {
  expect(pieces("run `muster status` now")).toEqual([
    { text: "run ", code: false },
    { text: "muster status", code: true },
    { text: " now", code: false },
  ]);
  expect(pieces("plain")).toEqual([{ text: "plain", code: false }]);
});
