import { expect, it } from "vitest";
import { FIRST_COLUMNS, shownColumns, widthOf } from "./agentColumns";

it("shows chosen columns in their order, and always the host", () => {
  expect(shownColumns(["os", "health", "gone"]).map((c) => c.id)).toEqual(["host", "health", "os"]);
  expect(shownColumns(FIRST_COLUMNS).map((c) => c.id)).toEqual(["host", "health", "version", "upgrade", "policy", "seen"]);
});

it("has a width for the frame", () => expect(widthOf(shownColumns(["health"]))).toBe(286));
