/** A plan as people write it: YAML in, the API's plan out, and every fault at its line. */
import { isMap, isNode, LineCounter, parseDocument, stringify, type Document } from "yaml";
import type { Plan } from "~/api/types";

export interface Fault {
  /** From 1; 0: the plan as a whole. */
  line: number;
  /** Such as strategy.kind; empty: the plan as a whole. */
  field: string;
  text: string;
}

export interface ParsedPlan {
  plan?: Plan;
  faults: Fault[];
}

/** A plan of a million lines is a mistake; naming agents one by one has its end at what an editor bears. */
export const MAX_PLAN_CHARS = 1_000_000;

/** parsePlan reads the text. What only the server can know is left to it. */
export function parsePlan(text: string): ParsedPlan {
  if (text.length > MAX_PLAN_CHARS) return { faults: [{ line: 0, field: "", text: "The plan is too long. Choose agents by labels or policies instead of by name." }] };
  const { doc, lines } = read(text);
  // Unknown tags and the like are warnings to the library; here they are faults, since what is meant is not clear.
  const found = [...doc.errors, ...doc.warnings].map((e) => ({ line: lines.linePos(e.pos[0]).line, field: "", text: firstLine(e.message) }));
  if (found.length > 0) return { faults: found };
  if (!isMap(doc.contents)) return { faults: [{ line: 1, field: "", text: "A plan is a list of names and values, such as “name: …” and “strategy: …”." }] };
  try {
    // maxAliasCount keeps a few lines of aliases from unfolding into gigabytes.
    const plan = doc.toJS({ maxAliasCount: 100 }) as Plan;
    return { plan, faults: missing(plan) };
  } catch (error) {
    return { faults: [{ line: 0, field: "", text: error instanceof Error ? firstLine(error.message) : String(error) }] };
  }
}

/** missing says without the server what every plan needs. */
function missing(plan: Plan): Fault[] {
  const faults: Fault[] = [];
  if (!plan.name) faults.push({ line: 0, field: "name", text: "name is missing: say what the rollout is called." });
  if (!plan.version && !plan.upgrade_id) faults.push({ line: 0, field: "version", text: "version is missing: say which version to reach, or name an upgrade manifest with profile and upgrade_id." });
  if (!plan.select || Object.keys(plan.select).length === 0) faults.push({ line: 0, field: "select", text: "select is missing: name agents, policies or labels, give a kuery, or say “all: true”." });
  return faults;
}

/** The server writes a duration with all its units, 168h0m0s, which nobody does by hand. */
const DURATIONS: readonly unknown[] = ["wait", "stale_after", "silent_after", "soak", "offer_for", "wait_for"];

/** planText is the plan as YAML that could be used again. */
export function planText(plan: Plan): string {
  const short = (go: string) => go.replace(/(?<=[hm])0s$/, "").replace(/(?<=h)0m$/, "");
  return stringify(plan, (key: unknown, value: unknown) => (DURATIONS.includes(key) && typeof value === "string" ? short(value) : value));
}

/** serverFault puts the server's refusal at the field it names, such as body.plan.strategy.kind. */
export function serverFault(text: string, message: string): Fault {
  const named = /\bbody\.(?:plan\.)?([a-z_][\w.[\]]*)/.exec(message)?.[1]?.replace(/\.$/, "") ?? "";
  if (named === "" || named === "plan") return { line: 0, field: "", text: message };
  return { line: lineOf(text, named), field: named, text: message };
}

/** lineOf finds a field, or the nearest one above it that is there; 0 for none. */
export function lineOf(text: string, field: string): number {
  const { doc, lines } = read(text);
  const path = field.split(/[.[\]]+/).filter(Boolean).map((p) => (/^\d+$/.test(p) ? Number(p) : p));
  for (let n = path.length; n > 0; n--) {
    const at = keyOffset(doc, path.slice(0, n));
    if (at !== undefined) return lines.linePos(at).line;
  }
  return 0;
}

function keyOffset(doc: Document, path: (string | number)[]): number | undefined {
  const parent = path.length === 1 ? doc.contents : doc.getIn(path.slice(0, -1), true);
  const last = path[path.length - 1];
  if (isMap(parent)) {
    const pair = parent.items.find((i) => isNode(i.key) && String(i.key) === String(last));
    return pair && isNode(pair.key) ? pair.key.range?.[0] : undefined;
  }
  const node = doc.getIn(path, true);
  return isNode(node) ? node.range?.[0] : undefined;
}

function read(text: string) {
  const lines = new LineCounter();
  // Core schema, YAML 1.2: "no" and "on" are words; a key given twice is a fault.
  return { doc: parseDocument(text, { lineCounter: lines, prettyErrors: false, uniqueKeys: true }), lines };
}

function firstLine(message: string): string {
  return message.split("\n")[0]!;
}
