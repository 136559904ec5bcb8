/**
 * Checks a plan against the schemas of the API: names, types and choices. All errors are found at
 * once and without the server, which checks the meaning.
 */
import { type Document, isScalar } from "yaml";
import { type Schema, schemas } from "~/api/__generated__/planSchema";

/** An error at a field, such as strategy.kind. */
export interface Wrong {
  field: string;
  text: string;
}

type Path = (string | number)[];

/** checkSchema returns what is wrong with a document that should be of a kind, such as Plan. */
export function checkSchema(doc: Document, kind: string, value: unknown): Wrong[] {
  const found: Wrong[] = [];
  check(doc, schemas[kind]!, value, [], found);
  return found;
}

/** fieldOf writes a path as the server's errors do, such as limits.per[0].max. */
export function fieldOf(path: Path): string {
  return path.map((p, i) => (typeof p === "number" ? `[${p}]` : i === 0 ? p : `.${p}`)).join("");
}

function check(doc: Document, given: Schema, value: unknown, path: Path, found: Wrong[]): void {
  const schema = given.ref ? schemas[given.ref]! : given;
  if (value === null || value === undefined) return; // a key without a value is as good as absent
  const wrong = (text: string) => found.push({ field: fieldOf(path), text: `${fieldOf(path)} ${text}` });
  if (!isOf(schema, value)) {
    wrong(`is ${shown(value)}, want ${wanted(schema)}${quoteHint(doc, schema, value, path)}.`);
    return;
  }
  if (schema.enum && !schema.enum.includes(value as string)) wrong(`is ${shown(value)}, want ${oneOf(schema.enum)}.`);
  if (schema.minimum !== undefined && (value as number) < schema.minimum) wrong(`is ${shown(value)}, want ${schema.minimum} or more.`);
  if (schema.type === "array") for (const [i, v] of (value as unknown[]).entries()) check(doc, schema.items ?? {}, v, [...path, i], found);
  if (schema.type !== "object") return;
  for (const [name, v] of Object.entries(value as object)) {
    const property = schema.properties?.[name] ?? schema.values;
    if (property) check(doc, property, v, [...path, name], found);
    else if (schema.properties)
      found.push({ field: fieldOf([...path, name]), text: `${fieldOf([...path, name])} is not a known key${nearest(name, Object.keys(schema.properties))}.` });
  }
}

function isOf(schema: Schema, value: unknown): boolean {
  switch (schema.type) {
    case "string":
      return typeof value === "string";
    case "boolean":
      return typeof value === "boolean";
    case "integer":
      return Number.isInteger(value);
    case "number":
      return typeof value === "number";
    case "array":
      return Array.isArray(value);
    case "object":
      return typeof value === "object" && !Array.isArray(value);
  }
  return true;
}

const names: Record<string, string> = {
  string: "text",
  boolean: "true or false",
  integer: "a whole number",
  number: "a number",
  array: "a list, such as [a, b]",
  object: "names and values",
};

const wanted = (schema: Schema): string => (schema.enum ? oneOf(schema.enum) : (names[schema.type ?? ""] ?? "something else"));

/** YAML reads 1.10 as the number 1.1, which is another version. */
function quoteHint(doc: Document, schema: Schema, value: unknown, path: Path): string {
  if (schema.type !== "string" || typeof value === "object") return "";
  const node = doc.getIn(path, true);
  return `: put it in quotes, "${(isScalar(node) && node.source) || String(value)}"`;
}

function shown(value: unknown): string {
  if (Array.isArray(value)) return "a list";
  if (typeof value === "object") return "names and values";
  return typeof value === "string" ? `“${value}”` : String(value);
}

const oneOf = (words: readonly string[]): string => (words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`);

/** nearest suggests the key that was probably meant. */
function nearest(name: string, known: string[]): string {
  const best = known.map((k) => ({ k, d: distance(name, k) })).sort((a, b) => a.d - b.d)[0];
  return best && best.d <= Math.max(2, Math.floor(name.length / 3)) ? `: did you mean ${best.k}` : "";
}

/** distance is the number of letters to change, add or remove. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)));
    row = next;
  }
  return row[b.length]!;
}
