import { expect, test } from "vitest";
import { matchesWords, parseEnrollSearch, parseListSearch, parsePolicySearch } from "./adminSearch";

test("unknown values of a search are dropped", () => {
  expect(parseListSearch({ page: 2, sort: "name", desc: true, q: "web", other: 1 })).toEqual({ page: 2, sort: "name", desc: true, q: "web" });
  expect(parseListSearch({ page: -1, desc: true, q: "" })).toEqual({});
  expect(parsePolicySearch({ revision: 3, against: 1.5, edit: "yes" })).toEqual({ revision: 3 });
  expect(parseEnrollSearch({ policy: "web", key: 7, platform: ["linux"] })).toEqual({ policy: "web", key: "7" });
});

test("a row matches if it contains each word", () => {
  expect(matchesWords("URL agents", ["agents.url", undefined])).toBe(true);
  expect(matchesWords("url tls", ["agents.url", "where agents connect"])).toBe(false);
  expect(matchesWords(undefined, ["x"])).toBe(true);
});
