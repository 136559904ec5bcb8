/** The search of the agents page, as in its address. */
import { isGroup, type StatusGroup } from "./status";

export const SORTS = ["host", "status", "version", "policy", "seen"] as const;
export type SortColumn = (typeof SORTS)[number];

export interface AgentsSearch {
  /** A query in KQL, which the server evaluates; the other filters are applied here to its result. */
  kuery?: string;
  q?: string;
  status?: StatusGroup[];
  version?: string;
  policy?: string;
  action?: string;
  ids?: string[];
  sort?: SortColumn;
  desc?: boolean;
  inactive?: boolean;
}

/** parseAgentsSearch drops unknown values, so that old links still open. */
export function parseAgentsSearch(raw: Record<string, unknown>): AgentsSearch {
  const status = list(raw.status).filter(isGroup);
  const ids = list(raw.ids);
  const sort = SORTS.find((s) => s === raw.sort);
  return compact({
    kuery: text(raw.kuery),
    q: text(raw.q),
    status: status.length > 0 ? status : undefined,
    version: text(raw.version),
    policy: text(raw.policy),
    action: text(raw.action),
    ids: ids.length > 0 ? ids : undefined,
    sort,
    desc: sort && raw.desc === true ? true : undefined,
    inactive: raw.inactive === true ? true : undefined,
  });
}

function text(value: unknown): string | undefined {
  return (typeof value === "string" || typeof value === "number") && value !== "" ? String(value) : undefined;
}

function list(value: unknown): string[] {
  const values = Array.isArray(value) ? value : typeof value === "string" ? value.split(",") : [];
  return values.filter((v): v is string => typeof v === "string" && v !== "");
}

function compact<T extends object>(object: T): T {
  return Object.fromEntries(Object.entries(object).filter(([, v]) => v !== undefined)) as T;
}
