/** The numbers above the agents table. */
import type { Facet, Health, ProgressState } from "~/api/types";

/** Hosts that enrol, or are inactive, are among the facets. */
export const TILE_HEALTH: readonly Health[] = ["healthy", "degraded", "failed", "offline"];

export const FAILED_PROGRESS: readonly ProgressState[] = ["failed", "rolled_back"];

export const countIn = (facet: Facet, value: string): number => facet.values.find((v) => v.value === value)?.count ?? 0;

/** sameValues reports whether a filter has exactly these values. */
export const sameValues = (filter: readonly string[] | undefined, values: readonly string[]): boolean =>
  filter?.length === values.length && values.every((v) => filter.includes(v));
