import { describe, expect, it } from "vitest";
import { hostQuery, movedTo, scoreOf, sectionsFor } from "./palette";

const entry = (label: string, more = {}) => ({ id: label, label, ...more });

describe("scoreOf", () => {
  it("prefers the whole label, then its start, then the start of a word", () => {
    const [whole, start, word, inside, none] = ["agents", "agents of web", "list agents", "reagents", "rollouts"].map((l) => scoreOf(entry(l), "agents"));
    expect(whole! > start! && start! > word! && word! > inside! && inside! > none!).toBe(true);
    expect(none).toBe(0);
  });
  it("needs each word, also those of the hint and of other names", () => {
    expect(scoreOf(entry("web 2.4.1", { hint: "Paused" }), "paused web")).toBeGreaterThan(0);
    expect(scoreOf(entry("Agents", { also: "hosts" }), "host")).toBeGreaterThan(0);
    expect(scoreOf(entry("web 2.4.1"), "web 2.5")).toBe(0);
  });
});

describe("sectionsFor", () => {
  const sections = [
    { title: "Pages", entries: [entry("Overview"), entry("Webhooks"), entry("Agents")], most: 2 },
    { title: "Hosts", entries: [entry("db-web-1")], found: true, most: 8 },
  ];
  it("sorts, limits and leaves out empty sections", () => {
    expect(sectionsFor(sections, "web").map((s) => s.entries.map((e) => e.label))).toEqual([["Webhooks"], ["db-web-1"]]);
    expect(sectionsFor(sections, " ")[0]!.entries.map((e) => e.label)).toEqual(["Overview", "Webhooks"]);
    expect(sectionsFor([sections[0]!], "zzz")).toEqual([]);
  });
  it("keeps what the server found, whatever its label", () => {
    expect(sectionsFor(sections, "fra").map((s) => s.title)).toEqual(["Hosts"]);
  });
});

describe("hostQuery", () => {
  it("asks for names with each word", () => {
    expect(hostQuery("web fra")).toBe("host: *web* and host: *fra*");
    expect(hostQuery("web-01.example")).toBe("host: *web-01.example*");
  });
  it("asks for nothing if the text is short, or is no part of a hostname", () => {
    for (const text of ["", "w", "a:b", 'we"b', "web*", "(web)", "\\web"]) expect(hostQuery(text)).toBeUndefined();
  });
});

it("moves in a circle", () => {
  expect(movedTo("ArrowDown", 2, 3)).toBe(0);
  expect(movedTo("ArrowUp", 0, 3)).toBe(2);
  expect(movedTo("PageDown", 0, 3)).toBe(2);
  expect(movedTo("a", 0, 3)).toBeUndefined();
  expect(movedTo("ArrowDown", 0, 0)).toBeUndefined();
});
