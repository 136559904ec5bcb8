/**
 * Changes one value of a plan's text and leaves the rest as its author wrote it: comments, unknown
 * keys, quotes, spaces and the order of keys.
 *
 * The library changes the document, which says what the new text has to mean, but writes all of it
 * again. So only the lines of the changed key are taken from it, and the whole of it only if these
 * lines do not mean the same in their place.
 */
import { Document, isAlias, isCollection, isMap, isPair, isScalar, isSeq, type Node, type Pair, parseDocument, Scalar, stringify, type YAMLMap } from "yaml";

export type Path = readonly string[];

/** The order in which new keys are written: that of the API. */
export type Order = (parent: Path) => readonly string[];

/** setValue sets the value at a path; undefined removes it, and the maps that it leaves empty. */
export function setValue(text: string, path: Path, value: unknown, order: Order): string {
  const doc = parseDocument(text);
  if (doc.errors.length > 0) return text; // the text is half written: nothing can be changed in it
  if (value === undefined && !doc.hasIn(path)) return text;
  const meant = doc.clone();
  if (value === undefined) remove(meant, path);
  else put(meant, path, value, order);
  const same = (next: string | undefined): next is string => {
    if (next === undefined) return false;
    const read = parseDocument(next);
    return read.errors.length === 0 && JSON.stringify(read.toJS()) === JSON.stringify(meant.toJS());
  };
  for (const next of [oneWord(text, doc, path, value), itsLines(text, doc, meant, path, order)]) if (same(next)) return next;
  return meant.toString(FORMAT);
}

const FORMAT = { lineWidth: 0, flowCollectionPadding: true };

/** oneWord replaces a scalar by another. */
function oneWord(text: string, doc: Document, path: Path, value: unknown): string | undefined {
  const node = doc.getIn(path, true);
  if (!isScalar(node) || !node.range || node.anchor || node.value === null || typeof value === "object" || value === undefined) return undefined;
  if (node.type === Scalar.BLOCK_FOLDED || node.type === Scalar.BLOCK_LITERAL) return undefined;
  const word = typeof value === "string" ? quoted(value, node.type) : String(value);
  return word.includes("\n") ? undefined : text.slice(0, node.range[0]) + word + text.slice(node.range[1]);
}

function quoted(value: string, type: Scalar.Type | undefined): string {
  if (type === Scalar.QUOTE_DOUBLE) return JSON.stringify(value);
  // Within [a, b] or { a: b } more letters need quotes.
  if (type === Scalar.QUOTE_SINGLE || /[,[\]{}#:]/.test(value)) return `'${value.replaceAll("'", "''")}'`;
  return stringify(value, { lineWidth: 0 }).trimEnd();
}

/** itsLines replaces, adds or removes the lines of the outermost key that changes. */
function itsLines(text: string, doc: Document, meant: Document, path: Path, order: Order): string | undefined {
  let map: unknown = doc.contents;
  for (let i = 0; i < path.length; i++) {
    if (!isMap(map) || map.flow || !map.items.every(isPair)) return undefined;
    const at = path.slice(0, i + 1);
    const pair = pairOf(map, path[i]!);
    const rendered = meant.hasIn(at) ? render(path[i]!, meant.getIn(at, true) as Node) : "";
    if (!pair) return insertAt(text, map, path[i]!, rendered, order(path.slice(0, i)));
    const lines = linesOf(text, pair);
    if (!lines) return undefined;
    if (i < path.length - 1 && rendered !== "" && isMap(pair.value) && !pair.value.flow) {
      map = pair.value;
      continue;
    }
    // Comments below a key without a value stay there.
    if (i < path.length - 1 && isScalar(pair.value) && pair.value.value === null) {
      const rest = render(path[i + 1]!, meant.getIn(path.slice(0, i + 2), true) as Node);
      return text.slice(0, lines.keyEnd) + indented(rest, lines.indent + 2) + text.slice(lines.keyEnd);
    }
    return text.slice(0, lines.start) + indented(rendered, lines.indent) + text.slice(lines.end);
  }
  return undefined;
}

const pairOf = (map: YAMLMap, key: string): Pair | undefined => map.items.find((p) => String(p.key) === key);

function insertAt(text: string, map: YAMLMap, key: string, rendered: string, order: readonly string[]): string | undefined {
  const before = map.items[placeOf(map, key, order) - 1];
  const lines = linesOf(text, before ?? map.items[0]);
  if (!lines) return undefined;
  const at = before ? lines.end : lines.start;
  const line = at > 0 && text[at - 1] !== "\n" ? "\n" : ""; // the last line may have no end
  return text.slice(0, at) + line + indented(rendered, lines.indent) + text.slice(at);
}

/** Where the lines of a key and its value begin and end; keyEnd is the end of the first. Undefined if something is before it. */
function linesOf(text: string, pair: Pair | undefined): { start: number; keyEnd: number; end: number; indent: number } | undefined {
  if (!pair || !isScalar(pair.key) || !pair.key.range) return undefined;
  const start = text.lastIndexOf("\n", pair.key.range[0] - 1) + 1;
  if (text.slice(start, pair.key.range[0]).trim() !== "") return undefined;
  return { start, keyEnd: lineEnd(text, pair.key.range[1]), end: lineEnd(text, lastOf(pair)), indent: pair.key.range[0] - start };
}

function lineEnd(text: string, at: number): number {
  // The end of a block of text is behind its last line already.
  if (at > 0 && text[at - 1] === "\n") return at;
  const end = text.indexOf("\n", at);
  return end < 0 ? text.length : end + 1;
}

/** The end of the last word; the range of a map has the comments after it, too. */
function lastOf(pair: Pair): number {
  let node = (pair.value ?? pair.key) as Node;
  while ((isMap(node) || isSeq(node)) && !node.flow && node.items.length > 0) {
    const last = node.items.at(-1) as Pair | Node;
    node = (isPair(last) ? (last.value ?? last.key) : last) as Node;
  }
  const key = pair.key as Node;
  return isScalar(node) && node.value === null ? Math.max(key.range![1], node.range?.[0] ?? 0) : node.range![1];
}

function render(key: string, value: Node): string {
  const doc = new Document({});
  (doc.contents as unknown as YAMLMap).items = [doc.createPair(key, value) as never];
  return doc.toString(FORMAT);
}

const indented = (lines: string, by: number): string => lines.replace(/^(?=.)/gm, " ".repeat(by));

function put(doc: Document, path: Path, value: unknown, order: Order): void {
  if (!isMap(doc.contents)) doc.contents = doc.createNode({}) as never;
  let map = doc.contents as unknown as YAMLMap;
  for (let i = 0; i < path.length - 1; i++) {
    const child = map.get(path[i]!, true) as unknown;
    if (isMap(child)) {
      map = child;
      continue;
    }
    // An alias stands for what is written elsewhere, which must not change.
    const own = doc.createNode(isAlias(child) ? (child.toJS(doc) as object) : {}) as YAMLMap;
    if (isScalar(child)) own.commentBefore = child.commentBefore ?? child.comment;
    insert(doc, map, path[i]!, own, order(path.slice(0, i)));
    map = own;
  }
  insert(doc, map, path.at(-1)!, doc.createNode(value, { flow: isFlow(value) }), order(path.slice(0, -1)));
}

/** Lists of words fit on a line. */
const isFlow = (value: unknown): boolean => Array.isArray(value) && value.every((v) => typeof v !== "object");

function insert(doc: Document, map: YAMLMap, key: string, value: unknown, order: readonly string[]): void {
  if (map.has(key)) map.set(key, value);
  else map.items.splice(placeOf(map, key, order), 0, doc.createPair(key, value) as never);
}

/** Behind the last of the keys that come before it. */
function placeOf(map: YAMLMap, key: string, order: readonly string[]): number {
  const place = order.indexOf(key);
  if (place < 0) return map.items.length;
  return map.items.findLastIndex((p) => order.includes(String(p.key)) && order.indexOf(String(p.key)) < place) + 1;
}

function remove(doc: Document, path: Path): void {
  doc.deleteIn(path);
  const parent = path.slice(0, -1);
  const left = parent.length > 0 ? doc.getIn(parent, true) : undefined;
  if (isCollection(left) && left.items.length === 0) remove(doc, parent);
}
