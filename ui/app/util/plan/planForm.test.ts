import { expect, test, vi } from "vitest";
import { parse } from "yaml";
import { planExample } from "./planExample";
import { fieldsOf, type PlanForm, partsOf, readForm, writeForm } from "./planForm";

// Each form is some twenty changes of a text, each of which is read again several times.
vi.setConfig({ testTimeout: 30_000 });

const written = `# The spring release.
name: "Spring"
version: 1.10   # the second digit matters

select:
  kuery: 'status: healthy'   # but not the others
# Canaries first.
strategy: { kind: canary, canary: { size: 2, over: [os, site] }, batch_percent: 25 }
limits:
  per:
    - label: site
      max: 2
pace:
  # soak: 30m
migration:
  type: none   # stays
`;

/** A generator of numbers, the same for each run. */
function random(seed: number): () => number {
  let s = seed;
  return () => {
    s = (s * 1664525 + 1013904223) % 4294967296;
    return s / 4294967296;
  };
}

const words = [
  "",
  "a",
  "Move web to 2.4.1",
  "it's: # [odd] {value}",
  '"quoted"',
  "1.10",
  "null",
  "- x",
  "two\nlines",
  'version: "1.1.0" and not status: (a or b)',
  "é…",
  "*",
  "true",
  "&a",
  "!x",
  "@y",
  "%z",
  "0x1F",
];

/** A form as the page may make one. */
function anyForm(r: () => number): PlanForm {
  const one = <T>(of: readonly T[]): T => of[Math.floor(r() * of.length)]!;
  const kind = one(["canary", "rolling", "all_at_once", "rings", "lockstep"]);
  const parts = partsOf(kind);
  const amount = (shown: boolean) => {
    const value = shown ? one(["", "3", "25", "12.5", "many"]) : "";
    return { unit: value === "" ? ("hosts" as const) : one(["hosts", "percent"] as const), value };
  };
  return {
    name: one(words),
    description: one(words),
    component: one(["", "web"]),
    version: one(["", "1.1.0", "1.10", "2.0.0-rc1"]),
    hosts: one<PlanForm["hosts"]>([{ by: "none" }, { by: "all" }, { by: "query", kuery: one(words) }, { by: "agents", agents: ["a1", "a2"] }]),
    lateJoiners: r() < 0.5,
    force: r() < 0.5,
    kind,
    canary: amount(parts.canary),
    spread: parts.canary && r() < 0.5,
    approval: parts.canary && r() < 0.5,
    batch: amount(parts.batch),
    maxParallel: one(["", "500"]),
    failureCount: one(["", "3", "0"]),
    failurePercent: one(["", "2.5"]),
    retries: one(["", "1"]),
    healthWait: one(["", "10m", "1h30m"]),
    soak: one(["", "30m", "oops"]),
    pauseOnSuccess: r() < 0.5,
    windows: one<PlanForm["windows"]>([
      [],
      [{ days: ["mon", "tue"], from: "22:00", to: "04:00", zone: "Europe/Berlin" }],
      [
        { days: [], from: "01:00", to: "02:00", zone: "" },
        { days: ["sun"], from: "", to: "", zone: "" },
      ],
    ]),
  };
}

test.each([
  ["", "an empty text"],
  [written, "a text with comments"],
  [planExample({ version: "1.1.0" }), "the example"],
  ["{name: x, strategy: {kind: rolling, batch_size: 5}}", "JSON-like YAML"],
])("a form that is written into a text is read from it again", (text) => {
  const r = random(7);
  for (let i = 0; i < 12; i++) {
    const form = anyForm(r);
    const next = writeForm(text, form);
    expect(readForm(next), next).toEqual(form);
    // Writing it again changes nothing, not even a space.
    expect(writeForm(next, form)).toBe(next);
  }
});

test("a chain of changes keeps comments and keys that the form does not know", () => {
  const r = random(11);
  let text = written;
  for (let i = 0; i < 30; i++) {
    const { kind: _, ...rest } = anyForm(r);
    const keys = Object.keys(rest) as (keyof typeof rest)[];
    const key = keys[Math.floor(r() * keys.length)]!;
    text = writeForm(text, { [key]: rest[key] });
    for (const kept of ["# The spring release.", "# Canaries first.", "# stays"]) expect(text).toContain(kept);
    expect(parse(text)).toMatchObject({
      strategy: { canary: { over: ["os", "site"] } },
      limits: { per: [{ label: "site", max: 2 }] },
      migration: { type: "none" },
    });
  }
});

test("a changed value replaces only itself", () => {
  expect(writeForm(written, { name: "Summer" })).toBe(written.replace('"Spring"', '"Summer"'));
  expect(writeForm(written, { version: "2.0.0" })).toBe(written.replace("1.10  ", "2.0.0  "));
  expect(writeForm(written, { hosts: { by: "query", kuery: "site: fra" } })).toBe(written.replace("status: healthy", "site: fra"));
  expect(writeForm(written, { batch: { unit: "percent", value: "50" } })).toBe(written.replace("25 }", "50 }"));
});

test("a new key is written at its place, and the last key of a map takes the map with it", () => {
  const added = writeForm(written, { description: "why", soak: "1h" });
  expect(added.indexOf("description: why")).toBeLessThan(added.indexOf("version:"));
  expect(parse(added).pace).toEqual({ soak: "1h" });
  expect(added).toContain("# soak: 30m");
  const text = "name: x\nfailure:\n  count: 3\n";
  expect(writeForm(text, { failureCount: "" })).toBe("name: x\n");
});

test("a version is read as it is written", () => {
  expect(readForm("version: 1.10")?.version).toBe("1.10");
});

test("a strategy without batches has none in its text", () => {
  expect(parse(writeForm(written, { kind: "all_at_once" })).strategy).toEqual({ kind: "all_at_once" });
});

test("hosts that only the text can choose are described, and stay", () => {
  const text = "select: { policies: [web, db], labels: { site: [fra] } }\n";
  const form = readForm(text)!;
  expect(form.hosts).toEqual({ by: "other", text: "policies: web, db; labels: site fra" });
  expect(writeForm(text, { ...form, name: "n" })).toContain("{ policies: [ web, db ], labels: { site: [ fra ] } }".replaceAll("[ ", "[").replaceAll(" ]", "]"));
});

test("text that is not YAML has no form and is not changed", () => {
  for (const text of ["name: [a", "- list", "a: b: c"]) {
    expect(readForm(text)).toBeUndefined();
    expect(writeForm(text, { name: "n" })).toBe(text);
  }
});

test("each field has the names that errors use", () => {
  expect(fieldsOf.soak).toEqual(["pace.soak"]);
  expect(fieldsOf.force).toEqual(["force"]);
});
