import { expect, test } from "vitest";
import { details } from "~/testing/agent";
import { stepsOf } from "./steps";

const places = (d: Parameters<typeof stepsOf>[0]) => stepsOf(d).map((s) => s.place).join(" ");

test.each([
  [details("UPG_SCHEDULED"), "now todo todo todo todo todo"],
  [details("UPG_REQUESTED"), "now todo todo todo todo todo"],
  [details("UPG_DOWNLOADING"), "done now todo todo todo todo"],
  [details("UPG_WATCHING"), "done done done done done now"],
  [details("UPG_ROLLBACK"), "done done done done done failed"],
  [details("UPG_FAILED", { failed_state: "UPG_EXTRACTING" }), "done done failed todo todo todo"],
  [details("UPG_FAILED"), "failed todo todo todo todo todo"],
])("%o", (d, want) => {
  expect(places(d)).toBe(want);
});
