import { expect, test } from "vitest";
import { diffHunks } from "./textDiff";

const shown = (before: string, after: string) => diffHunks(before, after).map((lines) => lines.join("\n"));
const numbers = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => String(from + i)).join("\n");

test("equal texts have no difference", () => {
  expect(shown("a\nb\n", "a\nb\n")).toEqual([]);
  expect(shown("", "")).toEqual([]);
  expect(shown("a", "a\n")).toEqual([]);
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

test("texts that differ in thousands of lines are shown at once", () => {
  const big = (word: string) => Array.from({ length: 5_000 }, (_, i) => `${word} ${i}`).join("\n");
  const lines = diffHunks(big("a"), big("b"))[0]!;
  expect(lines).toHaveLength(10_000);
  expect([lines[0], lines.at(-1)]).toEqual(["-a 0", "+b 4999"]);
});
