import { expect, test } from "vitest";
import { isTab, parseBoardSearch, parseRolloutsSearch, STATE_TABS, tabOf } from "./rolloutSearch";

test("the list's address", () => {
  expect(parseRolloutsSearch({ state: ["running", "unheard"], kind: "canary,other", page: 3 })).toEqual({ state: ["running"], kind: ["canary"], page: 3 });
  expect(parseRolloutsSearch({ state: "nothing", page: 1 })).toEqual({});
});

test("the board's address", () => {
  expect(parseBoardSearch({ state: "failed", batch: 0, code: "crash_loop", host: "a1", page: 2 })).toEqual({
    state: ["failed"],
    batch: 0,
    code: "crash_loop",
    host: "a1",
    page: 2,
  });
  expect(parseBoardSearch({ state: ["none"], batch: -1, code: 3, page: "2" })).toEqual({});
});

test("a tab is its states, in any order", () => {
  expect(tabOf(undefined)?.label).toBe("All");
  expect(tabOf(["cancelling", "running", "paused"])?.label).toBe("Under way");
  expect(tabOf(["running"])).toBeUndefined();
  expect(STATE_TABS.filter((t) => isTab(t, ["draft"])).map((t) => t.label)).toEqual(["Drafts"]);
});
