import { describe, expect, it } from "vitest";
import { chipsOf, facetWord, kueryOf, orderQuery, textQuery, toggled, valuesQuery } from "./agentsQuery";
import { parseAgentsSearch } from "./search";

describe("textQuery", () => {
  it("searches hosts for plain words", () => {
    expect(textQuery("web")).toBe("host: *web*");
    expect(textQuery("  web-fra  01 ")).toBe("host: *web-fra* and host: *01*");
  });
  it("keeps wildcards of the operator", () => expect(textQuery("web-*")).toBe("host: web-*"));
  it("finds an agent by its id", () => expect(textQuery("f59df865-25c9-4adc-8fdb-e3f1df338b8b")).toBe('agent.id: "f59df865-25c9-4adc-8fdb-e3f1df338b8b"'));
  it("leaves KQL as it is", () => {
    for (const q of ["health: offline", "version >= 2.0.0", "not web", "web or db", '"web 1"', "(web", "*"]) expect(textQuery(q)).toBe(q);
  });
  it("does not take a word that contains an operator for one", () => expect(textQuery("android order")).toBe("host: *android* and host: *order*"));
});

describe("valuesQuery", () => {
  it("quotes values", () => {
    expect(valuesQuery("tag", ['a "b"'])).toBe('tag: "a \\"b\\""');
    expect(valuesQuery("tag", ["site=fra", "pci"])).toBe('tag: ("site=fra" or "pci")');
  });
  it("selects agents without a value", () => {
    expect(valuesQuery("progress", [""])).toBe("not progress: *");
    expect(valuesQuery("progress", ["failed", ""])).toBe('(progress: "failed" or not progress: *)');
  });
});

describe("kueryOf", () => {
  it("is undefined for everything, which orders must name", () => {
    expect(kueryOf({})).toBeUndefined();
    expect(kueryOf({ kuery: "*" })).toBeUndefined();
    expect(orderQuery({ kuery: " " })).toBe("*");
  });
  it("joins text and facets", () => {
    expect(kueryOf({ kuery: "web or db", health: ["failed"], version: ["2.4.0", "2.5.0"] })).toBe(
      '(web or db) and health: "failed" and version: ("2.4.0" or "2.5.0")',
    );
    expect(kueryOf({ kuery: "web" })).toBe("host: *web*");
    expect(kueryOf({ policy: ["p-1"] })).toBe('policy: "p-1"');
  });
  it("leaves out the field whose values are counted", () => {
    expect(kueryOf({ kuery: "web", health: ["failed"] }, "health")).toBe("host: *web*");
    expect(kueryOf({ health: ["failed"] }, "health")).toBeUndefined();
  });
});

describe("filters", () => {
  it("toggles values", () => {
    expect(toggled(undefined, "a")).toEqual(["a"]);
    expect(toggled(["a", "b"], "a")).toEqual(["b"]);
    expect(toggled(["a"], "a")).toBeUndefined();
  });
  it("lists chips in the order of the facets", () => {
    expect(chipsOf({ site: ["fra"], health: ["failed", "offline"] })).toEqual([
      { field: "health", value: "failed" },
      { field: "health", value: "offline" },
      { field: "site", value: "fra" },
    ]);
  });
  it("has words for values", () => {
    expect(facetWord("progress", "rolled_back")).toBe("Rolled back");
    expect(facetWord("progress", "")).toBe("never upgraded");
    expect(facetWord("os", "darwin")).toBe("macOS");
    expect(facetWord("site", "fra")).toBe("fra");
  });
});

describe("parseAgentsSearch", () => {
  it("keeps what it knows", () => {
    expect(
      parseAgentsSearch({ kuery: "web", health: ["failed", "failed"], version: "2.4.0", page: 3, sort: "seen", desc: true, inactive: true, status: ["x"] }),
    ).toEqual({
      kuery: "web",
      health: ["failed"],
      version: ["2.4.0"],
      page: 3,
      sort: "seen",
      desc: true,
      inactive: true,
    });
  });
  it("keeps the empty value", () => expect(parseAgentsSearch({ site: [""] })).toEqual({ site: [""] }));
  it("drops the rest", () => expect(parseAgentsSearch({ page: 1, sort: "x", health: [null], q: "web" })).toEqual({}));
});
