/** What the command palette finds for a text. */

export interface Entry {
  id: string;
  label: string;
  /** Beside the label; it is searched too. */
  hint?: string;
  /** Words that find the entry and are not shown. */
  also?: string;
}

export interface Section<T extends Entry> {
  title: string;
  entries: readonly T[];
  /** The server has searched these already. */
  found?: boolean;
  /** At most so many are shown. */
  most: number;
}

const EXACT = 8;
const START = 4;
const WORD = 2;
const INSIDE = 1;

/** scoreOf is 0 unless each word of the text is found; the start of a word counts more than its middle. */
export function scoreOf(entry: Entry, text: string): number {
  const label = entry.label.toLowerCase();
  const all = `${label} ${entry.hint ?? ""} ${entry.also ?? ""}`.toLowerCase();
  let score = 0;
  for (const word of wordsOf(text)) {
    const at = all.indexOf(word);
    if (at < 0) return 0;
    if (label === word) score += EXACT;
    else if (label.startsWith(word)) score += START;
    else if (all.split(/[^\p{L}\p{N}]+/u).some((w) => w.startsWith(word))) score += WORD;
    else score += INSIDE;
  }
  return score;
}

const wordsOf = (text: string) =>
  text
    .toLowerCase()
    .split(/\s+/)
    .filter((w) => w !== "");

/** sectionsFor returns what matches, the best first; entries of equal score keep their order. Empty sections are left out. */
export function sectionsFor<T extends Entry>(sections: readonly Section<T>[], text: string): { title: string; entries: T[] }[] {
  const any = wordsOf(text).length > 0;
  return sections
    .map(({ title, entries, found, most }) => {
      if (!any || found) return { title, entries: entries.slice(0, most) };
      const scored = entries.map((entry) => ({ entry, score: scoreOf(entry, text) })).filter((s) => s.score > 0);
      return {
        title,
        entries: scored
          .sort((a, b) => b.score - a.score)
          .slice(0, most)
          .map((s) => s.entry),
      };
    })
    .filter((s) => s.entries.length > 0);
}

/** Fewer letters would match most hosts of a fleet. */
const LEAST_LETTERS = 2;

/**
 * hostQuery is the server's query for hosts whose names contain all words of a text. It is
 * undefined for a text that no hostname has: the query language would read its signs.
 */
export function hostQuery(text: string): string | undefined {
  const words = text.split(/\s+/).filter((w) => w !== "");
  if (words.join("").length < LEAST_LETTERS || words.some((w) => !/^[\p{L}\p{N}._-]+$/u.test(w))) return undefined;
  return words.map((w) => `host: *${w}*`).join(" and ");
}

/** movedTo returns the option that a key leads to; the list wraps around. */
export function movedTo(key: string, from: number, options: number): number | undefined {
  if (options === 0) return undefined;
  switch (key) {
    case "ArrowDown":
      return (from + 1) % options;
    case "ArrowUp":
      return (from - 1 + options) % options;
    case "PageDown":
      return options - 1;
    case "PageUp":
      return 0;
  }
  return undefined;
}
