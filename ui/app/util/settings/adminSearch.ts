/** The searches of the pages below the line of the rail, as in their addresses. */

export interface ListSearch {
  page?: number;
  sort?: string;
  desc?: boolean;
  /** Words that a row contains. */
  q?: string;
}

/** parseListSearch drops unknown values, so that old links still open. */
export function parseListSearch(raw: Record<string, unknown>): ListSearch {
  const sort = text(raw.sort);
  return compact({ page: pageOf(raw.page), sort, desc: sort && raw.desc === true ? true : undefined, q: text(raw.q) });
}

export interface SettingsSearch {
  q?: string;
  /** Only settings that differ from their defaults. */
  changed?: boolean;
}

export const parseSettingsSearch = (raw: Record<string, unknown>): SettingsSearch =>
  compact({ q: text(raw.q), changed: raw.changed === true ? true : undefined });

export interface PolicySearch {
  /** The revision that is shown, and the one that it is compared with. */
  revision?: number;
  against?: number;
  edit?: boolean;
}

export function parsePolicySearch(raw: Record<string, unknown>): PolicySearch {
  return compact({ revision: pageOf(raw.revision), against: pageOf(raw.against), edit: raw.edit === true ? true : undefined });
}

export interface EnrollSearch {
  page?: number;
  policy?: string;
  /** The enrolment key whose command is shown. */
  key?: string;
  platform?: string;
}

export function parseEnrollSearch(raw: Record<string, unknown>): EnrollSearch {
  return compact({ page: pageOf(raw.page), policy: text(raw.policy), key: text(raw.key), platform: text(raw.platform) });
}

/** matchesWords holds if the texts contain each word of q, whatever its case. */
export function matchesWords(q: string | undefined, texts: readonly (string | undefined)[]): boolean {
  const all = texts.join("\n").toLowerCase();
  return (q ?? "")
    .toLowerCase()
    .split(/\s+/)
    .every((word) => all.includes(word));
}

function pageOf(value: unknown): number | undefined {
  return typeof value === "number" && Number.isInteger(value) && value > 0 ? value : undefined;
}

function text(value: unknown): string | undefined {
  return (typeof value === "string" || typeof value === "number") && value !== "" ? String(value) : undefined;
}

function compact<T extends object>(object: T): T {
  return Object.fromEntries(Object.entries(object).filter(([, v]) => v !== undefined)) as T;
}
