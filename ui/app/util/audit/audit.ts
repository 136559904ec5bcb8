/** Entries of the audit trail: what they are about, and what a change of a policy changed. */
import type { AuditEntry } from "~/api/types";
import { withoutIds } from "~/util/prose";
import { closed, sentence } from "~/util/words";

/** The nouns of verbs, for the filter; the server takes a noun for all its verbs. */
export const NOUNS: readonly { value: string; label: string }[] = [
  { value: "agent", label: "Hosts" },
  { value: "component", label: "Components" },
  { value: "action", label: "Orders" },
  { value: "rollout", label: "Rollouts" },
  { value: "group", label: "Groups of rollouts" },
  { value: "fleet", label: "Fleets" },
  { value: "policy", label: "Policies" },
  { value: "package", label: "Packages" },
  { value: "trust", label: "Trust metadata" },
  { value: "publisher_key", label: "Publisher keys" },
  { value: "enrollment_key", label: "Enrolment keys" },
  { value: "admin_key", label: "Admin keys" },
  { value: "freeze", label: "Freezes" },
  { value: "exposure", label: "Exposure budget" },
  { value: "incident", label: "Incidents" },
  { value: "webhook", label: "Webhooks" },
  { value: "diagnostics", label: "Diagnostics" },
  { value: "server", label: "Servers" },
  { value: "view", label: "Saved views" },
];

export const nounOf = (verb: string): string => verb.split(".")[0]!;

/** What an entry is about, as the page that shows it; undefined if no page does. */
export type Subject =
  | { page: "rollout" | "group" | "policy" | "fleet" | "agent"; id: string }
  | { page: "actions"; id: string }
  | { page: "packages" | "webhooks" | "enroll" | "admin-keys" | "incidents" };

export function subjectOf(e: Pick<AuditEntry, "verb" | "subject" | "data">): Subject | undefined {
  const noun = nounOf(e.verb);
  switch (noun) {
    case "rollout":
    case "group":
    case "policy":
      return { page: noun, id: e.subject };
    case "fleet":
      return { page: noun, id: e.subject.replace(/^.*[/:]/, "") };
    case "agent":
      // An order for agents is about its action; only a change of one agent is about the agent.
      return isUuid(e.subject) ? { page: "agent", id: e.subject } : { page: "actions", id: e.subject };
    case "component":
    case "action":
      return { page: "actions", id: e.subject };
    case "incident":
      return { page: "incidents" };
    case "package":
    case "trust":
    case "publisher_key":
      return { page: "packages" };
    case "webhook":
      return { page: "webhooks" };
    case "enrollment_key":
      return { page: "enroll" };
    case "admin_key":
      return { page: "admin-keys" };
    default:
      return undefined;
  }
}

const isUuid = (id: string): boolean => /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(id);

const ONE_AGENT = /agent [0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/;

/** hostBeside returns the one agent that an entry is about, whose text has only its id. */
export function hostBeside(e: Pick<AuditEntry, "text" | "subject" | "data">): string | undefined {
  const id = ONE_AGENT.exec(e.text)?.[0].slice("agent ".length);
  return id ?? (typeof e.data?.agent_id === "string" && e.data.agent_id !== "" ? e.data.agent_id : undefined);
}

/** textOfEntry is an entry as a sentence, without who did it, whom a column of its own names. */
export function textOfEntry(e: Pick<AuditEntry, "text" | "actor">): string {
  const text = withoutIds(e.text).replace(ONE_AGENT, "a host");
  const about = text.startsWith(`${e.actor} `) ? text.slice(e.actor.length + 1) : text;
  // The name of a host keeps its spelling.
  return /^\S*\d/.test(about) ? closed(about) : sentence(about);
}

/** The rollout that an entry is about and that its text does not name. */
export function rolloutBeside(e: Pick<AuditEntry, "verb" | "subject" | "text">, names: ReadonlyMap<string, string>): { id: string; name: string } | undefined {
  if (nounOf(e.verb) !== "rollout" && nounOf(e.verb) !== "incident") return undefined;
  const name = names.get(e.subject);
  return name === undefined || e.text.includes(name) ? undefined : { id: e.subject, name };
}

export interface Change {
  field: string;
  before?: string;
  after?: string;
  /** The values may be a secret, which no trail has. */
  hidden?: boolean;
}

/** recordedChanges returns the fields that an entry says were changed. */
export function recordedChanges(e: Pick<AuditEntry, "data">): Change[] {
  return Array.isArray(e.data?.changes) ? (e.data.changes as Change[]) : [];
}

/** changesOf returns the fields that differ between two states of an object, by name; nested values are compared as a whole. */
export function changesOf(before: Readonly<Record<string, unknown>>, after: Readonly<Record<string, unknown>>): Change[] {
  const fields = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((f) => f !== "changes").sort();
  return fields.map((field) => ({ field, before: textOf(before[field]), after: textOf(after[field]) })).filter((c) => c.before !== c.after);
}

/** A value in one line; what is absent has none. */
export function textOf(value: unknown): string | undefined {
  if (value === undefined || value === null) return undefined;
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** A list of ids that is longer is counted. */
const IDS_SHOWN = 5;

/** dataOf returns what an entry records, as names and texts. */
export function dataOf(e: Pick<AuditEntry, "data">): [name: string, text: string][] {
  return Object.entries(e.data ?? {}).flatMap(([name, value]) => {
    if (name === "changes") return [];
    if (Array.isArray(value) && value.length > IDS_SHOWN && value.every((v) => typeof v === "string"))
      return [[name, `${value.length.toLocaleString()} (${value.slice(0, IDS_SHOWN).join(", ")} …)`] as [string, string]];
    const text = textOf(value);
    return text === undefined || text === "" ? [] : [[name, text] as [string, string]];
  });
}
