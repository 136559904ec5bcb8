/** The searches of the pages of fleets, as in their addresses. */

export interface FleetsSearch {
  /** As in labelSelector of the API: app=web,stage=prod. */
  labels?: string;
  page?: number;
}

export interface FleetSearch {
  edit?: boolean;
}

/** Both drop unknown values, so that old links still open. */
export function parseFleetsSearch(raw: Record<string, unknown>): FleetsSearch {
  const search: FleetsSearch = {};
  if (typeof raw.labels === "string" && raw.labels !== "") search.labels = raw.labels;
  if (typeof raw.page === "number" && Number.isInteger(raw.page) && raw.page >= 2) search.page = raw.page;
  return search;
}

export function parseFleetSearch(raw: Record<string, unknown>): FleetSearch {
  return raw.edit === true ? { edit: true } : {};
}
