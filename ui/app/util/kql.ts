/** What the search bar does with a query, which only the server understands: positions, answers, examples. */
import type { QuerySuggestion } from "~/api/types";

/** The server takes no longer query; see kuery in the OpenAPI document. */
export const MAX_QUERY_BYTES = 10_000;

const encoder = new TextEncoder();

export function bytesOf(text: string): number {
  return encoder.encode(text).length;
}

/** byteAt is how many bytes of UTF-8 stand before a position of the browser, which counts in units of UTF-16. */
export function byteAt(text: string, at: number): number {
  // Between the halves of one character: before it, or half of it would count as three bytes of its own.
  const half = /^[\uDC00-\uDFFF]/.test(text.slice(at)) && /[\uD800-\uDBFF]$/.test(text.slice(0, at));
  return bytesOf(text.slice(0, half ? at - 1 : at));
}

/** unitAt is byteAt backwards; a byte within a character means its beginning. */
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
  /** Where the cursor stands, in units of UTF-16. */
  cursor: number;
}

/** accepted is the query with a suggestion put in, and the cursor behind it. */
export function accepted(text: string, { from, to, text: put }: Pick<QuerySuggestion, "text" | "from" | "to">): Written {
  const before = text.slice(0, unitAt(text, from)) + put;
  return { text: before + text.slice(unitAt(text, to)), cursor: before.length };
}

export interface Fault {
  /** What is wrong, as a sentence. */
  what: string;
  /** The query and a mark under the place, as the server drew them; empty where it names no place. */
  place: string;
}

/** faultOf takes the server's refusal of a query apart: its first line says what, the others where. */
export function faultOf(message: string): Fault {
  const [first = "", ...lines] = message.split("\n");
  return { what: first.replace(/^\[request [\w.]+\]: /, "").replace(/^Kuery is malformed: /, "The query cannot be read: "), place: lines.join("\n") };
}

/** quoted is a text as a phrase of a query. */
export function quoted(text: string): string {
  return `"${text.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}

/** The help of the search bar, one example for each thing it can do. */
export const EXAMPLES: readonly { query: string; means: string }[] = [
  { query: "status: (offline or degraded)", means: "in one of two statuses" },
  { query: "agent.version >= 1.0.0 and agent.version < 1.2.0", means: "of a range of versions; 1.10.0 is more than 1.9.0" },
  { query: "tags: prod and not tags: canary", means: "with one tag and without another" },
  { query: "local_metadata.host.hostname.keyword: web-*", means: "whose host's name begins with web-" },
  { query: "last_checkin < now-1h", means: "not seen for an hour" },
  { query: "debian", means: "with this word in any field" },
];
