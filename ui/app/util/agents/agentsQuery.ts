/** The query that the agents page sends: the text of the search bar and the chosen values of the facets, as one text in KQL. */
import type { Health, ProgressState } from "~/api/types";
import { quoted } from "~/util/kql";
import { healthWord, progressWord } from "~/util/state";
import { type AgentsSearch, FACETS, type FacetField } from "./search";

/** A text with one of these is KQL; without it the words are parts of host names. */
const OPERATOR = /[:<>(){}"\\]|(^|\s)(and|or|not)(\s|$)/i;
const AGENT_ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** The query that selects every agent. Orders with an empty query are refused, so that it never selects all by mistake. */
export const EVERYTHING = "*";

/** textQuery returns the text of the search bar as KQL: plain words become a search for hosts. */
export function textQuery(text = ""): string {
  const t = text.trim();
  if (t === "" || t === EVERYTHING || OPERATOR.test(t)) return t;
  return t
    .split(/\s+/)
    .map((w) => (AGENT_ID.test(w) ? `agent.id: ${quoted(w)}` : `host: ${w.includes("*") ? w : `*${w}*`}`))
    .join(" and ");
}

/** valuesQuery selects the agents that have one of the values; the empty one means agents without a value. */
export function valuesQuery(field: string, values: readonly string[]): string {
  const given = values.filter((v) => v !== "").map(quoted);
  const any = given.length === 0 ? "" : given.length === 1 ? `${field}: ${given[0]}` : `${field}: (${given.join(" or ")})`;
  if (given.length === values.length) return any;
  return any === "" ? `not ${field}: *` : `(${any} or not ${field}: *)`;
}

/**
 * kueryOf returns the query of a search, or undefined if it selects everything. Without one field
 * it is the query for that field's own counts, so that its other values stay to be chosen.
 */
export function kueryOf(search: AgentsSearch, without?: FacetField): string | undefined {
  const text = textQuery(search.kuery);
  const parts = FACETS.filter((f) => f !== without && search[f]?.length).map((f) => valuesQuery(f, search[f]!));
  if (text !== "" && text !== EVERYTHING) parts.unshift(parts.length > 0 ? `(${text})` : text);
  return parts.length > 0 ? parts.join(" and ") : undefined;
}

/** orderQuery is kueryOf for orders, which name everything explicitly. */
export const orderQuery = (search: AgentsSearch): string => kueryOf(search) ?? EVERYTHING;

export const FACET_TITLES: Record<FacetField, string> = {
  health: "Health",
  progress: "Upgrade",
  version: "Version",
  policy: "Policy",
  tag: "Tag",
  os: "OS",
  site: "Site",
};

const NONE: Partial<Record<FacetField, string>> = {
  progress: "never upgraded",
  tag: "no tag",
  site: "no site",
  os: "unknown",
  version: "unknown",
  policy: "no policy",
};

const osWord: Record<string, string> = { linux: "Linux", windows: "Windows", darwin: "macOS" };

/** facetWord is the word for a value. Policies have labels of the server instead. */
export function facetWord(field: string, value: string): string {
  if (value === "") return NONE[field as FacetField] ?? "none";
  if (field === "health") return healthWord[value as Health] ?? value;
  if (field === "progress") return progressWord[value as ProgressState] ?? value;
  return field === "os" ? (osWord[value] ?? value) : value;
}

/** toggled returns the values with one added or removed; without any the filter is gone. */
export function toggled(values: readonly string[] | undefined, value: string): string[] | undefined {
  const next = values?.includes(value) ? values.filter((v) => v !== value) : [...(values ?? []), value];
  return next.length > 0 ? next : undefined;
}

export interface Chip {
  field: FacetField;
  value: string;
}

/** chipsOf lists the active filters, in the order of the facets. */
export const chipsOf = (search: AgentsSearch): Chip[] => FACETS.flatMap((field) => (search[field] ?? []).map((value) => ({ field, value })));

/** What removes every facet filter. */
export const NO_FILTERS: Partial<AgentsSearch> = Object.fromEntries([...FACETS, "page"].map((f) => [f, undefined]));
