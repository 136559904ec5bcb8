/** The difference of two texts by lines, as in a unified diff. */

export interface DiffLine {
  kind: "same" | "added" | "removed";
  text: string;
}

/** Lines around a difference that are shown with it, as diff -u does. */
const CONTEXT = 3;

/**
 * The comparison takes time and memory in proportion to the product of the lines that differ. Texts
 * that differ more are shown as removed and added as a whole: 4 million are some 2,000 lines each.
 */
const MAX_PRODUCT = 4_000_000;

/** diffHunks returns the lines that differ, each group with its context. Equal texts have none. */
export function diffHunks(before: string, after: string): DiffLine[][] {
  const lines = compare(linesOf(before), linesOf(after));
  const hunks: DiffLine[][] = [];
  let end = 0; // of the last hunk
  for (let i = 0; i < lines.length; i++) {
    if (lines[i]!.kind === "same") continue;
    const from = Math.max(end, i - CONTEXT);
    let last = i;
    for (let j = i; j < lines.length && j <= last + 2 * CONTEXT; j++) if (lines[j]!.kind !== "same") last = j;
    end = Math.min(lines.length, last + 1 + CONTEXT);
    hunks.push(lines.slice(from, end));
    i = end - 1;
  }
  return hunks;
}

const linesOf = (text: string): string[] => (text === "" ? [] : text.replace(/\n$/, "").split("\n"));

function compare(a: string[], b: string[]): DiffLine[] {
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const as =
    (kind: DiffLine["kind"]) =>
    (text: string): DiffLine => ({ kind, text });
  return [
    ...a.slice(0, head).map(as("same")),
    ...compareMiddle(a.slice(head, a.length - tail), b.slice(head, b.length - tail)),
    ...a.slice(a.length - tail).map(as("same")),
  ];
}

/** compareMiddle keeps a longest common subsequence of the lines. */
function compareMiddle(a: string[], b: string[]): DiffLine[] {
  if (a.length * b.length > MAX_PRODUCT) {
    return [...a.map((text): DiffLine => ({ kind: "removed", text })), ...b.map((text): DiffLine => ({ kind: "added", text }))];
  }
  const width = b.length + 1;
  const common = new Uint32Array((a.length + 1) * width); // of a[i:] and b[j:]
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1]! + 1 : Math.max(common[(i + 1) * width + j]!, common[i * width + j + 1]!);
    }
  }
  const out: DiffLine[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      out.push({ kind: "same", text: a[i]! });
      i++;
      j++;
    } else if (i < a.length && (j === b.length || common[(i + 1) * width + j]! >= common[i * width + j + 1]!)) {
      out.push({ kind: "removed", text: a[i++]! });
    } else {
      out.push({ kind: "added", text: b[j++]! });
    }
  }
  return out;
}
