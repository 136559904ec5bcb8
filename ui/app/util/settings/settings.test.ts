import { expect, test } from "vitest";
import type { Setting } from "~/api/types";
import { filterSettings, valueText } from "./settings";

const list: Setting[] = [
  { key: "agents.url", value: "https://x", origin: "file", description: "the address for agents" },
  { key: "limits.memory_bytes", value: "25276063744", origin: "default", description: "memory that the server may use" },
  { key: "tls.key", value: "", origin: "default", description: "key of the certificate" },
];

test("settings are found by any of their words", () => {
  expect(filterSettings(list, "configuration agents", false).map((s) => s.key)).toEqual(["agents.url"]);
  expect(filterSettings(list, undefined, true).map((s) => s.key)).toEqual(["agents.url"]);
  expect(filterSettings(list, "", false)).toHaveLength(3);
});

test("sizes are readable", () => {
  expect(list.map(valueText)).toEqual(["https://x", "25276063744 (24,105 MiB)", ""]);
});
