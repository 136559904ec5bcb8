import { describe, expect, it } from "vitest";
import { SETUP, WORK } from "~/pages/nav";
import { intentOf, type Press, shortcutGroups } from "./shortcuts";

const pages = [
  { to: "/agents", label: "Agents", key: "a" },
  { to: "/packages", label: "Packages", key: "k" },
];
const press = (key: string, more: Partial<Press> = {}): Press => ({ key, ctrl: false, meta: false, alt: false, typing: false, inside: false, ...more });

describe("intentOf", () => {
  it("opens the palette from everywhere, even from a field", () => {
    expect(intentOf(press("k", { ctrl: true, typing: true, inside: true }), false, pages)).toEqual({ kind: "palette" });
    expect(intentOf(press("K", { meta: true }), false, pages)).toEqual({ kind: "palette" });
  });
  it("leaves keys to fields, dialogs and the browser", () => {
    for (const more of [{ typing: true }, { inside: true }, { ctrl: true }, { alt: true }]) {
      expect(intentOf(press("j", more), false, pages)).toBeUndefined();
      expect(intentOf(press("/", more), false, pages)).toBeUndefined();
    }
  });
  it("reads a page's key after g only", () => {
    expect(intentOf(press("g"), false, pages)).toEqual({ kind: "prefix" });
    expect(intentOf(press("a"), true, pages)).toEqual({ kind: "go", to: "/agents" });
    expect(intentOf(press("a"), false, pages)).toBeUndefined();
    expect(intentOf(press("k"), true, pages)).toEqual({ kind: "go", to: "/packages" });
    expect(intentOf(press("k"), false, pages)).toEqual({ kind: "row", key: "k" });
    expect(intentOf(press("x"), true, pages)).toEqual({ kind: "row", key: "x" });
  });
});

it("gives each page of the rail a key of its own", () => {
  const all = [...WORK, ...SETUP];
  expect(new Set(all.map((p) => p.key)).size).toBe(all.length);
  expect(shortcutGroups(all, false).at(-1)!.items).toHaveLength(all.length);
});
