/** The search of the agents page, as in its address. */
export const FACETS = ["health", "progress", "version", "policy", "tag", "os", "site"] as const;
export type FacetField = (typeof FACETS)[number];

/** The columns by which the server sorts, and their fields in the API. */
export const SORT_FIELDS = {
  host: "local_metadata.host.hostname",
  version: "agent.version",
  policy: "policy_id",
  seen: "last_checkin",
  enrolled: "enrolled_at",
} as const;
export type SortColumn = keyof typeof SORT_FIELDS;

export interface AgentsSearch extends Partial<Record<FacetField, string[]>> {
  /** What the search bar has: KQL, or words of host names. */
  kuery?: string;
  page?: number;
  sort?: SortColumn;
  desc?: boolean;
  inactive?: boolean;
}

/** parseAgentsSearch drops unknown values, so that old links still open. */
export function parseAgentsSearch(raw: Record<string, unknown>): AgentsSearch {
  const sort = (Object.keys(SORT_FIELDS) as SortColumn[]).find((s) => s === raw.sort);
  return compact({
    kuery: text(raw.kuery),
    ...Object.fromEntries(FACETS.map((f) => [f, list(raw[f])])),
    page: typeof raw.page === "number" && Number.isInteger(raw.page) && raw.page > 1 ? raw.page : undefined,
    sort,
    desc: raw.desc === true ? true : undefined,
    inactive: raw.inactive === true ? true : undefined,
  });
}

function text(value: unknown): string | undefined {
  return (typeof value === "string" || typeof value === "number") && value !== "" ? String(value) : undefined;
}

/** The empty text is a value: hosts without one. */
function list(value: unknown): string[] | undefined {
  const values = (Array.isArray(value) ? value : [value]).flatMap((v) => (typeof v === "string" ? [v] : typeof v === "number" ? [String(v)] : []));
  return values.length > 0 ? [...new Set(values)] : undefined;
}

function compact<T extends object>(object: T): T {
  return Object.fromEntries(Object.entries(object).filter(([, v]) => v !== undefined)) as T;
}
