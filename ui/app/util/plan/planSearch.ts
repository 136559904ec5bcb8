/** The search of the page for a new rollout, as in its address, and the links to it. */

export interface NewRolloutSearch {
  kuery?: string;
  version?: string;
  component?: string;
  /** Ids of agents, or STORED if they are too many for an address. */
  agents?: string[] | typeof STORED;
  /** What a narrow window shows. */
  view?: "yaml";
}

/** The ids are in this tab's storage. */
const STORED = "stored";
const KEY = "muster.rollout.agents";
/** More ids make an address that cannot be read or sent to somebody. */
const MAX_IN_ADDRESS = 20;

const text = (v: unknown): string | undefined => ((typeof v === "string" || typeof v === "number") && v !== "" ? String(v) : undefined);

/** parseNewRolloutSearch drops unknown values, so that old links still open. */
export function parseNewRolloutSearch(raw: Record<string, unknown>): NewRolloutSearch {
  const ids = (Array.isArray(raw.agents) ? raw.agents : typeof raw.agents === "string" && raw.agents !== STORED ? raw.agents.split(",") : []).filter(
    (v): v is string => typeof v === "string" && v !== "",
  );
  const search: NewRolloutSearch = {
    kuery: text(raw.kuery),
    version: text(raw.version),
    component: text(raw.component),
    agents: raw.agents === STORED ? STORED : ids.length > 0 ? ids : undefined,
    view: raw.view === "yaml" ? "yaml" : undefined,
  };
  return Object.fromEntries(Object.entries(search).filter(([, v]) => v !== undefined));
}

/** rollOutTo returns the search of a new rollout to these agents: all that a query finds, or those with these ids. */
export function rollOutTo(to: { kuery: string } | { agents: string[] }, storage: Storage = sessionStorage): NewRolloutSearch {
  if ("kuery" in to) return { kuery: to.kuery };
  if (to.agents.length <= MAX_IN_ADDRESS) return { agents: to.agents };
  storage.setItem(KEY, JSON.stringify(to.agents));
  return { agents: STORED };
}

/** agentsOf returns the ids of a search; null if they were stored in another tab. */
export function agentsOf({ agents }: NewRolloutSearch, storage: Storage = sessionStorage): string[] | undefined | null {
  if (agents !== STORED) return agents;
  try {
    const ids: unknown = JSON.parse(storage.getItem(KEY) ?? "");
    return Array.isArray(ids) && ids.every((v) => typeof v === "string") ? ids : null;
  } catch {
    return null;
  }
}

/** parsePageSearch reads the page of a list; the first one is not in the address. */
export const parsePageSearch = (raw: Record<string, unknown>): { page?: number } =>
  typeof raw.page === "number" && Number.isInteger(raw.page) && raw.page > 1 ? { page: raw.page } : {};
