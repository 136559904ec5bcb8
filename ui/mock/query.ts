/**
 * The queries of the mock. They are not KQL: and, or, not, parentheses, field: value with * in it,
 * field: (a or b), < and > between versions, and one word without a field, over the few fields
 * below. A value is one word or one phrase.
 */
import type { Agent, QuerySuggestion } from "../app/api/types";
import { compareVersions } from "../app/util/version.ts";

type Test = (agent: Agent) => boolean;
type Values = (agent: Agent) => string[];

const metadata = (a: Agent) => a.local_metadata as { host: { hostname: string }; os: { name: string } };

const FIELDS: Record<string, { of: Values; description: string; words?: boolean }> = {
  status: { of: (a) => [a.status], description: "what people see of it" },
  "agent.version": { of: (a) => [a.agent.version], description: "the version that runs; < and > compare versions, not texts" },
  tags: { of: (a) => a.tags, description: "what it is tagged with" },
  policy_id: { of: (a) => [a.policy_id], description: "the policy it belongs to" },
  "local_metadata.host.hostname": { of: (a) => [metadata(a).host.hostname], description: "the host's name", words: true },
  "local_metadata.host.hostname.keyword": { of: (a) => [metadata(a).host.hostname], description: "the same, whole and by case" },
  "local_metadata.os.name": { of: (a) => [metadata(a).os.name], description: "such as Ubuntu", words: true },
  "components.name": { of: (a) => a.components.flatMap((c) => c.name ?? []), description: "what it runs" },
  "components.version": { of: (a) => a.components.flatMap((c) => c.version ?? []), description: "the version of one" },
  component_actions: { of: (a) => a.components.flatMap((c) => (c.upgrade_status === "started" && c.upgrade_action_id) || []), description: "the actions that upgrade its components now" },
  "upgrade_details.action_id": { of: (a) => (a.upgrade_details ? [a.upgrade_details.action_id] : []), description: "the action that upgrades it" },
};

/** A query that the mock cannot parse, with the server's format. */
export class QueryError extends Error {
  constructor(query: string, at: number, wanted: string) {
    const found = at < query.length ? JSON.stringify(query[at]) : "end of input";
    super(`Kuery is malformed: Expected ${wanted} but ${found} found.\n${query}\n${" ".repeat(at)}^`);
  }
}

export function read(query: string): Test {
  if (query.trim() === "") return () => true;
  const tokens = [...query.matchAll(/<=|>=|[<>:()]|"(?:\\.|[^"\\])*"|"|[^\s<>:()"]+/g)].map((m) => ({ text: m[0], at: m.index }));
  let next = 0;
  const peek = () => tokens[next]?.text;
  const fail = (wanted: string): never => { throw new QueryError(query, tokens[next]?.at ?? query.length, wanted); };
  const word = (wanted: string): string => {
    const text = peek();
    if (text === undefined || /^([<>:()]|<=|>=|and|or|")$/.test(text)) return fail(wanted);
    next++;
    return text;
  };
  const list = (one: () => Test): Test => {
    const all = (): Test => {
      const parts = [one()];
      while (peek() === "and") next++, parts.push(one());
      return (a) => parts.every((p) => p(a));
    };
    const parts = [all()];
    while (peek() === "or") next++, parts.push(all());
    return (a) => parts.some((p) => p(a));
  };
  const group = (one: () => Test): Test => {
    next++;
    const inner = list(one);
    if (peek() !== ")") return fail("AND, OR, whitespace, or \")\"");
    next++;
    return inner;
  };
  const value = (field: string): Test => has(field, word("a value"));
  const values = (field: string): Test => (peek() === "(" ? group(() => values(field)) : value(field));
  const condition = (): Test => {
    if (peek() === "not") {
      next++;
      const inner = condition();
      return (a) => !inner(a);
    }
    if (peek() === "(") return group(condition);
    const name = word("a field or a value");
    const operator = peek();
    if (operator === ":") {
      next++;
      return values(name);
    }
    if (operator && /^[<>]=?$/.test(operator)) {
      next++;
      const than = word("a value");
      return (a) => (FIELDS[name]?.of(a) ?? []).some((v) => compares(compareVersions(v, than), operator));
    }
    return (a) => Object.keys(FIELDS).some((f) => has(f, name)(a));
  };
  const test = list(condition);
  if (next < tokens.length) fail("AND, OR, whitespace, or end of input");
  return test;
}

function compares(difference: number, operator: string): boolean {
  return difference === 0 ? operator.endsWith("=") : difference < 0 === operator.startsWith("<");
}

function has(name: string, written: string): Test {
  const field = FIELDS[name];
  if (name === "*") return () => true;
  if (!field) return () => false;
  const text = written.startsWith('"') ? written.slice(1, -1).replace(/\\(["\\])/g, "$1") : written;
  const pattern = new RegExp(`^${text.split(written.startsWith('"') ? /(?!)/ : "*").map((t) => t.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join(".*")}$`, field.words ? "i" : "");
  return (a) => field.of(a).some((v) => (field.words ? [v, ...v.split(/[^A-Za-z0-9.]+/)] : [v]).some((t) => pattern.test(t)));
}

/** suggest looks only at the text right before the cursor. Positions are in bytes, as the server's are. */
export function suggest(agents: readonly Agent[], query: string, cursor: number): QuerySuggestion[] {
  const before = Buffer.from(query).subarray(0, cursor).toString();
  const from = (text: string) => cursor - Buffer.byteLength(text);
  const value = /([\w.]+) ?: ?\(?("?)([^\s"():]*)$/.exec(before);
  const field = value && FIELDS[value[1]!];
  if (field) {
    const known = [...new Set(agents.flatMap(field.of))].filter((v) => v.toLowerCase().startsWith(value[3]!.toLowerCase())).sort();
    return known.slice(0, 20).map((v) => ({ kind: "value", text: `${/^[\w.]+$/.test(v) ? v : JSON.stringify(v)} `, from: from(value[2]! + value[3]!), to: cursor }));
  }
  if (/[\w.*)"] +$/.test(before) && !/\b(and|or|not) +$/.test(before)) {
    return ["and ", "or "].map((text) => ({ kind: "conjunction", text, from: cursor, to: cursor }));
  }
  const word = /[^\s():]*$/.exec(before)![0];
  const names = Object.keys(FIELDS).filter((f) => f.includes(word.toLowerCase()) && f !== word);
  const found: QuerySuggestion[] = names.map((text) => ({ kind: "field", text, from: from(word), to: cursor, description: FIELDS[text]!.description }));
  if (FIELDS[word]) found.push({ kind: "operator", text: ": ", from: cursor, to: cursor, description: "has a value" });
  return found;
}
