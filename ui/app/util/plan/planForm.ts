/**
 * The form of a rollout's plan. The text is the plan; the form reads what it knows from it, and
 * writes one changed field into it. What the form does not know stays as it is written.
 */
import { type Document, isMap, isScalar, parseDocument } from "yaml";
import { schemas } from "~/api/__generated__/planSchema";
import { type Path, setValue } from "./planEdit";

export interface Amount {
  unit: "hosts" | "percent";
  value: string;
}

export interface WindowForm {
  days: string[];
  from: string;
  to: string;
  zone: string;
}

/** Which hosts a plan selects. Other: by keys that only the text has, described in words. */
export type Hosts = { by: "none" } | { by: "all" } | { by: "query"; kuery: string } | { by: "agents"; agents: string[] } | { by: "other"; text: string };

export interface PlanForm {
  name: string;
  description: string;
  component: string;
  version: string;
  hosts: Hosts;
  lateJoiners: boolean;
  force: boolean;
  kind: string;
  canary: Amount;
  spread: boolean;
  approval: boolean;
  batch: Amount;
  maxParallel: string;
  failureCount: string;
  failurePercent: string;
  retries: string;
  healthWait: string;
  soak: string;
  pauseOnSuccess: boolean;
  windows: WindowForm[];
}

type Texts = "name" | "description" | "component" | "version" | "kind" | "maxParallel" | "failureCount" | "failurePercent" | "retries" | "healthWait" | "soak";
type Flags = "lateJoiners" | "force" | "spread" | "approval" | "pauseOnSuccess";

const texts: Record<Texts, Path> = {
  name: ["name"],
  description: ["description"],
  component: ["component"],
  version: ["version"],
  kind: ["strategy", "kind"],
  maxParallel: ["limits", "max_parallel"],
  failureCount: ["failure", "count"],
  failurePercent: ["failure", "percent"],
  retries: ["failure", "retries"],
  healthWait: ["health", "wait"],
  soak: ["pace", "soak"],
};

/** A flag is set if its key has this value. */
const flags: Record<Flags, { path: Path; on: unknown }> = {
  lateJoiners: { path: ["late_joiners"], on: "join" },
  force: { path: ["force"], on: true },
  spread: { path: ["strategy", "canary", "pick"], on: "stratified" },
  approval: { path: ["strategy", "canary", "approval"], on: true },
  pauseOnSuccess: { path: ["pace", "pause_on_success"], on: true },
};

const amounts: Record<"canary" | "batch", Record<Amount["unit"], Path>> = {
  canary: { hosts: ["strategy", "canary", "size"], percent: ["strategy", "canary", "percent"] },
  batch: { hosts: ["strategy", "batch_size"], percent: ["strategy", "batch_percent"] },
};

/** The fields of the API below each field of the form, by which errors find their place. */
export const fieldsOf: Record<keyof PlanForm, string[]> = {
  ...(Object.fromEntries(
    [...Object.entries(texts), ...Object.entries(flags).map(([k, f]) => [k, f.path] as const)].map(([k, path]) => [k, [path.join(".")]]),
  ) as Record<Texts | Flags, string[]>),
  hosts: ["select"],
  canary: ["strategy.canary.size", "strategy.canary.percent", "strategy.canary"],
  batch: ["strategy.batch_size", "strategy.batch_percent"],
  windows: ["pace.windows"],
};

/** Which of the parts of a strategy the form shows. */
export const partsOf = (kind: string) => ({ canary: kind === "canary" || kind === "rings", batch: kind !== "all_at_once" && kind !== "lockstep" });

/** readForm reads the form from a plan's text; undefined if the text is not YAML. */
export function readForm(text: string): PlanForm | undefined {
  const doc = parseDocument(text);
  if (doc.errors.length > 0 || (doc.contents !== null && !isMap(doc.contents))) return undefined;
  const form = { hosts: readHosts(doc), windows: readWindows(doc), canary: readAmount(doc, "canary"), batch: readAmount(doc, "batch") } as PlanForm;
  for (const key of Object.keys(texts) as Texts[]) form[key] = textAt(doc, texts[key]);
  for (const key of Object.keys(flags) as Flags[]) form[key] = doc.getIn(flags[key].path) === flags[key].on;
  return form;
}

/** writeForm writes the fields that differ from those of the text. */
export function writeForm(text: string, changed: Partial<PlanForm>): string {
  const before = readForm(text);
  if (!before) return text;
  let next = text;
  const set = (path: Path, value: unknown) => {
    next = setValue(next, path, value, orderOf);
  };
  for (const key of Object.keys(changed) as (keyof PlanForm)[]) {
    if (JSON.stringify(changed[key]) === JSON.stringify(before[key])) continue;
    if (key in texts) set(texts[key as Texts], scalar(texts[key as Texts], changed[key as Texts]!));
    else if (key in flags) set(flags[key as Flags].path, changed[key as Flags] ? flags[key as Flags].on : undefined);
    else if (key === "canary" || key === "batch") writeAmount(set, key, changed[key]!);
    else if (key === "windows") set(["pace", "windows"], changed.windows!.length > 0 ? changed.windows!.map(windowOf) : undefined);
    else writeHosts(set, changed.hosts!, before.hosts);
  }
  if (changed.kind !== undefined && changed.kind !== before.kind) {
    const parts = partsOf(changed.kind);
    if (!parts.canary) set(["strategy", "canary"], undefined);
    if (!parts.batch) for (const path of Object.values(amounts.batch)) set(path, undefined);
  }
  return next;
}

type Set = (path: Path, value: unknown) => void;

function writeAmount(set: Set, key: "canary" | "batch", { unit, value }: Amount): void {
  const other = unit === "hosts" ? "percent" : "hosts";
  set(amounts[key][unit], scalar(amounts[key][unit], value));
  set(amounts[key][other], undefined);
}

function writeHosts(set: Set, hosts: Hosts, before: Hosts): void {
  if (hosts.by === "query" && before.by === "query") set(["select", "kuery"], hosts.kuery);
  // Other keys would narrow the choice, without being shown.
  else if (hosts.by !== "other") set(["select"], selectOf(hosts));
}

function selectOf(hosts: Hosts): object {
  switch (hosts.by) {
    case "all":
      return { all: true };
    case "query":
      return { kuery: hosts.kuery };
    case "agents":
      return { agents: hosts.agents };
  }
  return {};
}

export const windowOf = ({ days, from, to, zone }: WindowForm) => ({ ...(days.length > 0 && { days }), from, to, ...(zone && { zone }) });

/** What is not the number that the API wants stays text, and is shown as an error. */
function scalar(path: Path, value: string): unknown {
  if (value.trim() === "") return undefined;
  const type = schemaAt(path)?.type;
  if (type !== "integer" && type !== "number") return value;
  return /^\d+(\.\d+)?$/.test(value.trim()) ? Number(value) : value;
}

function schemaAt(path: Path) {
  let at = schemas.Plan;
  for (const key of path) {
    const next = at?.properties?.[key];
    at = next?.ref ? schemas[next.ref] : next;
  }
  return at;
}

const orderOf = (parent: Path): string[] => Object.keys(schemaAt(parent)?.properties ?? {});

/** textAt returns a value as it is written: YAML reads version 1.10 as a number. */
function textAt(doc: Document, path: Path): string {
  const node = doc.getIn(path, true);
  if (!isScalar(node) || node.value === null) return "";
  return typeof node.value === "string" ? node.value : (node.source ?? String(node.value));
}

function readAmount(doc: Document, key: "canary" | "batch"): Amount {
  const percent = textAt(doc, amounts[key].percent);
  return percent !== "" ? { unit: "percent", value: percent } : { unit: "hosts", value: textAt(doc, amounts[key].hosts) };
}

function plain(doc: Document, path: Path): unknown {
  try {
    return (doc.toJS({ maxAliasCount: 100 }) as Record<string, unknown> | null)?.[path[0]!];
  } catch {
    return undefined; // too many aliases, which the check of the text reports
  }
}

function readHosts(doc: Document): Hosts {
  const select = plain(doc, ["select"]);
  if (select === null || select === undefined) return { by: "none" };
  const given = typeof select === "object" ? Object.entries(select).filter(([, v]) => v !== null && v !== false) : [];
  const [[key, value] = [], ...more] = given;
  if (key === undefined && typeof select === "object") return { by: "none" };
  if (more.length === 0) {
    if (key === "all" && value === true) return { by: "all" };
    if (key === "kuery" && typeof value === "string") return { by: "query", kuery: value };
    if (key === "agents" && Array.isArray(value) && value.every((v) => typeof v === "string")) return { by: "agents", agents: value };
  }
  return { by: "other", text: given.map(([k, v]) => `${k.replaceAll("_", " ")}: ${inWords(v)}`).join("; ") || String(select) };
}

function inWords(value: unknown): string {
  if (Array.isArray(value)) return value.map(inWords).join(", ");
  if (value !== null && typeof value === "object")
    return Object.entries(value)
      .map(([k, v]) => `${k} ${inWords(v)}`)
      .join(", ");
  return String(value);
}

function readWindows(doc: Document): WindowForm[] {
  const pace = plain(doc, ["pace"]);
  const windows = pace !== null && typeof pace === "object" ? (pace as { windows?: unknown }).windows : undefined;
  if (!Array.isArray(windows)) return [];
  const word = (v: unknown) => (typeof v === "string" ? v : "");
  return windows.map((w: Record<string, unknown> | null) => ({
    days: Array.isArray(w?.days) ? w.days.filter((d): d is string => typeof d === "string") : [],
    from: word(w?.from),
    to: word(w?.to),
    zone: word(w?.zone),
  }));
}
