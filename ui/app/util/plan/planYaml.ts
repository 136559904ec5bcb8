/** Converts plans and fleets in YAML to those of the API and back, and locates errors at their lines. */
import { type Document, isMap, isNode, LineCounter, parseDocument, stringify } from "yaml";
import type { GroupPlan, Plan } from "~/api/types";
import { checkSchema } from "./planCheck";
import { without } from "./planWithout";

export interface Fault {
  /** Counted from 1; 0 means the whole text. */
  line: number;
  /** Such as strategy.kind; empty for the whole text. */
  field: string;
  text: string;
  /** It is not written yet, which is no mistake while the plan is being written. */
  missing?: boolean;
}

export interface Parsed<P> {
  plan?: P;
  faults: Fault[];
}

/** A longer plan is a mistake: it names agents one by one, and an editor cannot hold it. */
export const MAX_PLAN_CHARS = 1_000_000;

/** parsePlan parses the plan of a rollout. The server checks the rest. */
export const parsePlan = (text: string): Parsed<Plan> => parse(text, missing, "plan", "Plan");

/** parseGroup parses the plan of a group, as parsePlan. */
export const parseGroup = (text: string): Parsed<GroupPlan> => parse(text, missingOfGroup, "plan", "GroupPlan");

/**
 * parse parses a plan, or what is written like one. Missing finds what is not there yet, and a schema of the API checks
 * names and types.
 */
export function parse<P>(text: string, missing: (plan: P) => Fault[], what = "plan", schema?: string): Parsed<P> {
  if (text.length > MAX_PLAN_CHARS)
    return { faults: [{ line: 0, field: "", text: `The ${what} is too long. Select agents by labels or policies instead of by name.` }] };
  const { doc, lines } = read(text);
  // The library warns about unknown tags and the like; here they are errors, since their meaning is unclear.
  const found = [...doc.errors, ...doc.warnings].map((e) => ({ line: lines.linePos(e.pos[0]).line, field: "", text: firstLine(e.message) }));
  if (found.length > 0) return { faults: found };
  if (!isMap(doc.contents)) return { faults: [{ line: 1, field: "", text: `A ${what} is a list of names and values, such as “name: …”.` }] };
  try {
    // maxAliasCount keeps a few lines of aliases from expanding to gigabytes.
    const plan = doc.toJS({ maxAliasCount: 100 }) as P;
    const wrong = schema ? checkSchema(doc, schema, plan) : [];
    const faults = [...wrong, ...missing(plan)].map((f) => ({ ...f, line: lineOf(text, f.field) }));
    return { plan, faults: faults.sort((a, b) => a.line - b.line) };
  } catch (error) {
    return { faults: [{ line: 0, field: "", text: error instanceof Error ? firstLine(error.message) : String(error) }] };
  }
}

export const lacks = (field: string, text: string): Fault => ({ line: 0, field, text: `${field} is missing: ${text}`, missing: true });

/** missing checks what every plan needs, without the server. */
function missing(plan: Plan): Fault[] {
  const faults: Fault[] = [];
  if (!plan.name) faults.push(lacks("name", "name the rollout."));
  if (!plan.version && !plan.upgrade_id) faults.push(lacks("version", "name the version to upgrade to, or an upgrade manifest with profile and upgrade_id."));
  if (isEmpty(plan.select)) faults.push(lacks("select", "choose the hosts by a query, name agents, policies or labels, or use “all: true”."));
  if (!plan.strategy?.kind) faults.push(lacks("strategy", "say how the hosts are upgraded, such as {kind: canary}."));
  return faults;
}

const isEmpty = (select: Plan["select"]): boolean =>
  !select || Object.values(select).every((v) => v === null || v === "" || v === false || (typeof v === "object" && Object.keys(v).length === 0));

function missingOfGroup(plan: GroupPlan): Fault[] {
  const faults: Fault[] = [];
  if (!plan.name) faults.push(lacks("name", "name the group."));
  if (!plan.failure_policy)
    faults.push(lacks("failure_policy", "say what happens when a member fails: partial_ok, rollback_all or manual. There is no default."));
  if (!plan.desired_versions || Object.keys(plan.desired_versions).length === 0)
    faults.push(lacks("desired_versions", "give the version of each member, such as {db: 1.2.0, web: 3.0.0}."));
  if (!Array.isArray(plan.members) || plan.members.length === 0) faults.push(lacks("members", "list what is upgraded, in its order."));
  return faults;
}

/** The server writes a duration with all its units, such as 168h0m0s. */
const DURATIONS: readonly unknown[] = ["wait", "stale_after", "silent_after", "soak", "offer_for", "wait_for"];

/** planText returns the plan as YAML that parsePlan accepts. */
export function planText(plan: Plan): string {
  const short = (go: string) => go.replace(/(?<=[hm])0s$/, "").replace(/(?<=h)0m$/, "");
  return stringify(plan, (key: unknown, value: unknown) => (DURATIONS.includes(key) && typeof value === "string" ? short(value) : value));
}

/** fieldNamed returns the field of a plan that an error of the server names, such as members[1].plan.select; empty if none. */
export function fieldNamed(message: string): string {
  const named = /\bbody\.(?:plan\.)?([a-z_]\w*(?:\.\w+|\[\d+\])*)/.exec(message)?.[1] ?? "";
  return named === "plan" ? "" : named;
}

/** Messages that begin like this go on after the name of the field. */
const VERB = /^(is|are|has|have|does|do|belongs?|conflicts?|needs?|differs?|names?|chooses|cuts|lacks|was|were|must|cannot)\b/;

/** serverFault locates the server's error at the field it names. */
export function serverFault(text: string, message: string): Fault {
  const field = fieldNamed(message);
  if (field === "") return { line: 0, field: "", text: message };
  const rest = message.replace(/^\[request body\.[^\]]*(?:\[\d+\][^\]]*)*\]:\s*/, "");
  const line = lineOf(text, field);
  // The server looks for the packages of a version, so what it lacks is what the version should have.
  if (line === 0 && field === "artifacts") return { line: lineOf(text, "version"), field: "version", text: rest };
  return { line, field, text: rest === message ? message : VERB.test(rest) ? `${field} ${rest}` : `${field}: ${rest}` };
}

/** lineOf finds the line of a field, or of its nearest parent; 0 if there is none. */
export function lineOf(text: string, field: string): number {
  const { doc, lines } = read(text);
  const path = field
    .split(/[.[\]]+/)
    .filter(Boolean)
    .map((p) => (/^\d+$/.test(p) ? Number(p) : p));
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
  // The core schema of YAML 1.2: "no" and "on" are strings; duplicate keys are errors.
  return { doc: parseDocument(text, { lineCounter: lines, prettyErrors: false, uniqueKeys: true }), lines };
}

function firstLine(message: string): string {
  return message.split("\n")[0]!;
}

/** soundPart returns a plan without its wrong fields, so that the server checks the others; undefined if something is missing. */
export function soundPart<P extends object>({ plan, faults }: Parsed<P>): P | undefined {
  if (!plan || faults.some((f) => f.missing)) return undefined;
  return faults.reduce<P | undefined>((rest, f) => rest && (without(rest, f.field) ?? rest), plan);
}

/** isWithin reports whether a field is another one, or a part of it. */
export const isWithin = (field: string, parent: string): boolean => field === parent || field.startsWith(`${parent}.`) || field.startsWith(`${parent}[`);
