/** The search bar's part of queries, which only the server parses: positions, errors, examples. */
import type { QuerySuggestion } from "~/api/types";

/** The longest query that the server accepts; see kuery in the OpenAPI document. */
export const MAX_QUERY_BYTES = 10_000;

const encoder = new TextEncoder();

export function bytesOf(text: string): number {
  return encoder.encode(text).length;
}

/** byteAt converts a position in UTF-16 units, as browsers count, to a position in UTF-8 bytes. */
export function byteAt(text: string, at: number): number {
  // Between the surrogates of a character: move before it, or its first half would count as three bytes.
  const half = /^[\uDC00-\uDFFF]/.test(text.slice(at)) && /[\uD800-\uDBFF]$/.test(text.slice(0, at));
  return bytesOf(text.slice(0, half ? at - 1 : at));
}

/** unitAt is the inverse of byteAt; a byte within a character means its start. */
export function unitAt(text: string, byte: number): number {
  let bytes = 0;
  let units = 0;
  for (const character of text) {
    bytes += bytesOf(character);
    if (bytes > byte) break;
    units += character.length;
  }
  return units;
}

export interface Written {
  text: string;
  /** Position of the cursor in UTF-16 units. */
  cursor: number;
}

/** accepted returns the query with a suggestion inserted, and the cursor after it. */
export function accepted(text: string, { from, to, text: put }: Pick<QuerySuggestion, "text" | "from" | "to">): Written {
  const before = text.slice(0, unitAt(text, from)) + put;
  return { text: before + text.slice(unitAt(text, to)), cursor: before.length };
}

export interface Fault {
  /** What is wrong, as a sentence. */
  what: string;
  /** The query and a mark under the position, as the server sends them; empty if the error has no position. */
  place: string;
}

/** faultOf splits the server's error for a query: its first line is the message, the others show the position. */
export function faultOf(message: string): Fault {
  const [first = "", ...lines] = message.split("\n");
  return { what: first.replace(/^\[request [\w.]+\]: /, "").replace(/^Kuery is malformed: /, "The query cannot be parsed: "), place: lines.join("\n") };
}

/** quoted returns a text as a phrase of a query. */
export function quoted(text: string): string {
  return `"${text.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}

/** The help of the search bar: one example for each feature. */
export const EXAMPLES: readonly { query: string; means: string }[] = [
  { query: "web fra", means: "hosts with both words in their names" },
  { query: "health: (offline or degraded)", means: "in one of two states" },
  { query: "version >= 2.3.0 and version < 2.10.0", means: "in a range of versions; 2.10.0 is above 2.9.0" },
  { query: "tag: prod and not tag: canary", means: "with one tag and without another" },
  { query: "progress: rolled_back", means: "whose last upgrade was rolled back" },
  { query: "host: web-*", means: "whose name starts with web-" },
  { query: "last_checkin < now-1h", means: "not seen for an hour" },
];
