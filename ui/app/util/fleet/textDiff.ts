import { structuredPatch } from "diff";

/** Lines around a difference that are shown with it, as diff -u does. */
const CONTEXT = 3;
/** Texts that differ in more lines are shown as removed and added as a whole, since the comparison takes time with the square of the number. */
const MOST_CHANGES = 1_000;

/** diffHunks returns the lines that differ, each group with its context and each line with its sign, as in a unified diff. Equal texts have none. */
export function diffHunks(before: string, after: string): string[][] {
  const [a, b] = [ended(before), ended(after)];
  const patch = structuredPatch("", "", a, b, "", "", { context: CONTEXT, maxEditLength: MOST_CHANGES });
  if (patch) return patch.hunks.map((h) => h.lines);
  const all = (text: string, sign: string) =>
    text
      .split("\n")
      .slice(0, -1)
      .map((line) => sign + line);
  return [[...all(a, "-"), ...all(b, "+")]];
}

/** The end of the last line is no difference. */
const ended = (text: string): string => (text === "" || text.endsWith("\n") ? text : `${text}\n`);
