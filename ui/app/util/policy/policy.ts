/** Policies: their settings as texts that can be compared, their revisions, and the form that changes them. */
import { stringify } from "yaml";
import type { PolicyChange } from "~/api/policies";
import type { AuditEntry, Policy, PolicyComponent } from "~/api/types";
import { type WindowForm, windowOf } from "~/util/plan/planForm";
import { type Fault, parse } from "~/util/plan/planYaml";

type Window = NonNullable<Policy["upgrade_windows"]>[number];

/** The settings that the audit trail records with each change, and that the form edits. */
export interface PolicySettings {
  name: string;
  description?: string;
  /** Seconds; 0: never inactive. */
  inactivity_timeout: number;
  unenroll_timeout?: number;
  required_versions?: { version: string; percentage: number }[];
  upgrade_windows?: Window[];
  components?: Omit<PolicyComponent, "in_force">[];
}

export function settingsOf(p: Policy): PolicySettings {
  return {
    name: p.name,
    description: p.description || undefined,
    inactivity_timeout: p.inactivity_timeout,
    unenroll_timeout: p.unenroll_timeout ?? undefined,
    required_versions: p.required_versions?.length ? p.required_versions : undefined,
    upgrade_windows: p.upgrade_windows?.length ? p.upgrade_windows : undefined,
    components: p.components?.length ? p.components.map(withoutInForce) : undefined,
  };
}

/** The server sets which version is in force; it is no setting. */
function withoutInForce(c: PolicyComponent): Omit<PolicyComponent, "in_force"> {
  const { in_force: _, ...rest } = c;
  return rest;
}

export interface Revision {
  number: number;
  entry: AuditEntry;
  /** Absent: the settings were too large to be recorded. */
  settings?: PolicySettings;
}

type Recorded = Partial<PolicySettings> & { revision?: number; variables?: Record<string, Record<string, string>> };

/** revisionsOf returns the revisions that the audit trail has, newest first. Variables are recorded beside the components. */
export function revisionsOf(entries: readonly AuditEntry[]): Revision[] {
  const out: Revision[] = [];
  for (const entry of entries) {
    const { revision, variables, ...rest } = (entry.data ?? {}) as Recorded;
    if (!entry.verb.startsWith("policy.") || entry.verb === "policy.delete" || typeof revision !== "number" || out.some((r) => r.number === revision)) continue;
    const components = rest.components?.map((c) => ({ ...withoutInForce(c), ...(variables?.[c.name] ? { variables: variables[c.name] } : {}) }));
    const settings = rest.name === undefined ? undefined : ({ ...rest, components } as PolicySettings);
    out.push({ number: revision, entry, settings });
  }
  return out;
}

/** revisionText is the entry's text without what the row shows already: who, and which policy. */
export function revisionText(entry: AuditEntry, policyName: string): string {
  const text = entry.text.replace(`${entry.actor} `, "");
  const change = /^changed the policy .*?: (.*)$/.exec(text);
  if (change) return change[1]!.replaceAll("_", " ");
  return text.replace(` the policy ${policyName}`, "");
}

/** settingsText is a file of the settings, whose lines can be compared. */
export function settingsText(s: PolicySettings): string {
  return stringify(
    {
      name: s.name,
      description: s.description,
      inactivity_timeout: s.inactivity_timeout,
      unenroll_timeout: s.unenroll_timeout,
      required_versions: s.required_versions,
      upgrade_windows: s.upgrade_windows?.map((w) => ordered(w, WINDOW_ORDER)),
      components: s.components?.map(orderedComponent),
    },
    { lineWidth: 0 },
  );
}

const WINDOW_ORDER = ["days", "from", "to", "zone"];
const COMPONENT_ORDER = ["name", "runtime", "version", "lockstep", "server_config", "artifact", "variables", "health"];
const HEALTH_ORDER = ["wait_seconds", "max_restarts", "checks"];
const CHECK_ORDER = ["name", "http", "tcp"];

/** The API and the audit trail send the same fields in different orders, which is no difference. */
function orderedComponent(c: Omit<PolicyComponent, "in_force">): object {
  const checks = c.health?.checks?.map((k) => ordered(k, CHECK_ORDER));
  const health = c.health && ordered({ ...c.health, checks }, HEALTH_ORDER);
  return ordered({ ...c, health, variables: c.variables && ordered(c.variables, Object.keys(c.variables).sort()) }, COMPONENT_ORDER);
}

/** ordered puts the fields that are named first. */
function ordered(o: object, first: readonly string[]): object {
  const fields = Object.entries(o).filter(([, v]) => v !== undefined);
  const rank = (k: string) => (first.includes(k) ? first.indexOf(k) : first.length);
  return Object.fromEntries(fields.sort(([a], [b]) => rank(a) - rank(b)));
}

const DAY = 86_400;

export function secondsText(seconds: number): string {
  if (seconds % DAY === 0) return seconds === DAY ? "1 day" : `${(seconds / DAY).toLocaleString()} days`;
  if (seconds % 3600 === 0) return seconds === 3600 ? "1 hour" : `${(seconds / 3600).toLocaleString()} hours`;
  return `${seconds.toLocaleString()} s`;
}

export interface PolicyForm {
  name: string;
  description: string;
  /** Hours, or empty for never. */
  inactiveHours: string;
  required: { version: string; percentage: string }[];
  windows: WindowForm[];
  /** YAML: a list of components. */
  components: string;
}

export function formOf(p: Policy): PolicyForm {
  const s = settingsOf(p);
  return {
    name: s.name,
    description: s.description ?? "",
    inactiveHours: s.inactivity_timeout ? String(s.inactivity_timeout / 3600) : "",
    required: (s.required_versions ?? []).map((r) => ({ version: r.version, percentage: String(r.percentage) })),
    windows: (s.upgrade_windows ?? []).map((w) => ({ days: w.days ?? [], from: w.from, to: w.to, zone: w.zone ?? "" })),
    components: s.components ? stringify(s.components.map(orderedComponent), { lineWidth: 0 }) : "",
  };
}

export interface FormErrors {
  name?: string;
  inactiveHours?: string;
  required?: string;
  components?: string;
}

/** wantedOf reads the form. The server checks the rest, such as versions that nobody has published. */
export function wantedOf(form: PolicyForm, base: Policy): { settings?: PolicySettings; errors: FormErrors } {
  const errors: FormErrors = {};
  if (form.name.trim() === "") errors.name = "A policy needs a name.";
  const hours = form.inactiveHours.trim() === "" ? 0 : Number(form.inactiveHours);
  if (!Number.isFinite(hours) || hours < 0) errors.inactiveHours = "A number of hours, or nothing for never.";
  const rows = form.required.filter((r) => r.version.trim() !== "" || r.percentage.trim() !== "");
  const required = rows.map((r) => ({ version: r.version.trim(), percentage: Number(r.percentage) }));
  if (required.some((r) => r.version === "")) errors.required = "Name a version in each line.";
  else if (rows.some((r) => r.percentage.trim() === "") || required.some((r) => !(r.percentage >= 0 && r.percentage <= 100)))
    errors.required = "A percentage is a number from 0 to 100.";
  const { components, fault } = parseComponents(form.components);
  if (fault) errors.components = fault.line > 0 ? `Line ${fault.line}: ${fault.text}` : fault.text;
  if (Object.keys(errors).length > 0) return { errors };
  return {
    settings: {
      name: form.name.trim(),
      description: form.description.trim() || undefined,
      inactivity_timeout: Math.round(hours * 3600),
      unenroll_timeout: base.unenroll_timeout ?? undefined,
      required_versions: required.length > 0 ? required : undefined,
      upgrade_windows: form.windows.length > 0 ? form.windows.map(windowOf) : undefined,
      components: components.length > 0 ? components : undefined,
    },
    errors,
  };
}

/** parseComponents reads a list of components in YAML, also one below the key components, as in the file of the command line. */
export function parseComponents(text: string): { components: PolicyComponent[]; fault?: Fault } {
  if (text.trim() === "") return { components: [] };
  const below = /^components:/m.test(text);
  const { plan, faults } = parse<{ components?: unknown }>(below ? text : `components:\n${text.replace(/^/gm, "  ")}`, () => [], "list of components");
  const first = faults[0];
  if (first) return { components: [], fault: { ...first, line: below || first.line === 0 ? first.line : Math.max(1, first.line - 1) } };
  const list = plan?.components ?? [];
  if (!Array.isArray(list)) return { components: [], fault: { line: 1, field: "components", text: "Components are a list: each begins with “- name: …”." } };
  const nameless = list.findIndex((c) => typeof c !== "object" || c === null || typeof (c as PolicyComponent).name !== "string");
  if (nameless >= 0) return { components: [], fault: { line: 0, field: `components[${nameless}]`, text: `Component ${nameless + 1} has no name.` } };
  return { components: list as PolicyComponent[] };
}

/** bodyOf is the request that makes the settings of a policy those that are wanted. */
export function bodyOf(wanted: PolicySettings, base: Policy): PolicyChange {
  return {
    name: wanted.name,
    namespace: base.namespace,
    inactivity_timeout: wanted.inactivity_timeout,
    description: wanted.description ?? "",
    required_versions: wanted.required_versions ?? null,
    upgrade_windows: wanted.upgrade_windows ?? null,
    components: (wanted.components as PolicyComponent[] | undefined) ?? null,
    ...(base.is_managed ? { force: true } : {}),
  };
}

/** requiredText describes the versions that a policy upgrades its hosts to. */
export const requiredText = (p: Policy): string => (p.required_versions ?? []).map((r) => `${r.version} · ${r.percentage} %`).join(", ");

const dayWord: Record<string, string> = { mon: "Mon", tue: "Tue", wed: "Wed", thu: "Thu", fri: "Fri", sat: "Sat", sun: "Sun" };

/** windowsText describes when a policy upgrades its hosts automatically. */
export const windowsText = (p: Policy): string =>
  (p.upgrade_windows ?? [])
    .map((w) => `${w.days?.length ? w.days.map((d) => dayWord[d] ?? d).join(", ") : "every day"} ${w.from}–${w.to} ${w.zone ?? "UTC"}`)
    .join(" and ");
