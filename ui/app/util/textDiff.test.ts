import { expect, test } from "vitest";
import { diffHunks } from "./textDiff";

const signs = { same: " ", added: "+", removed: "-" };
const shown = (before: string, after: string) => diffHunks(before, after).map((h) => h.map((l) => signs[l.kind] + l.text).join("\n"));
const numbers = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => String(from + i)).join("\n");

test("equal texts have no difference", () => {
  expect(shown("a\nb\n", "a\nb\n")).toEqual([]);
  expect(shown("", "")).toEqual([]);
});

test("a changed line is removed and added, within three lines of context", () => {
  const after = numbers(1, 20).replace("\n10\n", "\nten\n");
  expect(shown(numbers(1, 20), after)).toEqual([" 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13"]);
});

test("differences that are far apart are shown apart, near ones together", () => {
  const far = numbers(1, 30).replace("\n5\n", "\nfive\n").replace("\n25\n", "\n");
  expect(shown(numbers(1, 30), far)).toEqual([" 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8", " 22\n 23\n 24\n-25\n 26\n 27\n 28"]);
  const near = numbers(1, 30).replace("\n5\n", "\nfive\n").replace("\n10\n", "\n");
  expect(shown(numbers(1, 30), near)).toEqual([" 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n 9\n-10\n 11\n 12\n 13"]);
});

test("a new text is all added, a removed one all removed", () => {
  expect(shown("", "a\nb\n")).toEqual(["+a\n+b"]);
  expect(shown("a\n", "")).toEqual(["-a"]);
});

test("hunks together have every difference once: applying them gives the other text", () => {
  let seed = 7;
  const random = (n: number) => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return seed % n;
  };
  for (let round = 0; round < 200; round++) {
    const make = () => Array.from({ length: random(14) }, () => "abc"[random(3)]!).join("\n");
    const [before, after] = [make(), make()];
    const lines = diffHunks(before, after).flat();
    const changes = (kind: "added" | "removed") =>
      lines
        .filter((l) => l.kind === kind)
        .map((l) => l.text)
        .sort()
        .join();
    const left = (of: string, other: string) => {
      const rest = other === "" ? [] : other.split("\n");
      return (of === "" ? [] : of.split("\n")).filter((l) => {
        const i = rest.indexOf(l);
        if (i >= 0) rest.splice(i, 1);
        return i < 0;
      });
    };
    // At least what no line of the other text can account for.
    for (const l of left(before, after)) expect(changes("removed"), `${before}|${after}`).toContain(l);
    for (const l of left(after, before)) expect(changes("added"), `${before}|${after}`).toContain(l);
    const removed = lines.filter((l) => l.kind === "removed").length;
    const added = lines.filter((l) => l.kind === "added").length;
    const count = (t: string) => (t === "" ? 0 : t.split("\n").length);
    expect(count(before) - removed + added).toBe(count(after));
  }
});

test("texts that differ in thousands of lines are shown at once", () => {
  const big = (word: string) => Array.from({ length: 5_000 }, (_, i) => `${word} ${i}`).join("\n");
  expect(diffHunks(big("a"), big("b"))[0]).toHaveLength(10_000);
});
