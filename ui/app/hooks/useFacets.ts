/** Counts by facet. A facet with chosen values is counted without them, so that its other values stay to be chosen. */
import { useQueries } from "@tanstack/react-query";
import { useState } from "react";
import { facetsQuery } from "~/api/agents";
import type { Facet } from "~/api/types";
import { kueryOf } from "~/util/agents/agentsQuery";
import { type AgentsSearch, FACETS, type FacetField } from "~/util/agents/search";

export type FacetCounts = Partial<Record<FacetField, Facet>>;

export function useFacets(search: AgentsSearch): FacetCounts {
  const chosen = FACETS.filter((f) => search[f]?.length);
  const free = FACETS.filter((f) => !chosen.includes(f));
  const asked = [
    ...(free.length > 0 ? [facetsQuery(kueryOf(search), search.inactive, chosen.length > 0 ? free.join(",") : undefined)] : []),
    ...chosen.map((f) => facetsQuery(kueryOf(search, f), search.inactive, f)),
  ];
  const fresh = useQueries({ queries: asked, combine: combineFacets });
  // The number of requests changes with the filters; the counts of before stay until the new ones arrive.
  const [last, setLast] = useState<FacetCounts>({});
  if (fresh !== last && Object.values(fresh).some((f) => !Object.values(last).includes(f))) setLast({ ...last, ...fresh });
  return { ...last, ...fresh };
}

function combineFacets(results: readonly { data?: { facets: Facet[] } }[]): FacetCounts {
  return Object.fromEntries(results.flatMap((r) => (r.data?.facets ?? []).map((f) => [f.field, f])));
}
