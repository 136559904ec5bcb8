/** Incidents, a page of those in one state at a time, and what operators decide about them. */
import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { type IncidentCommand, unresolvedText } from "~/util/incident/incident";
import { call } from "./client";
import { keys, POLL_MS } from "./queries";
import type { Incident } from "./types";

export const INCIDENTS_PER_PAGE = 50;

export const incidentPageQuery = (state: Incident["state"], page: number, perPage = INCIDENTS_PER_PAGE) =>
  queryOptions({
    queryKey: [...keys.incidents, { state, page, perPage }] as const,
    queryFn: ({ signal }) => call("get", "/api/v1/incidents", { query: { state, page, perPage }, signal }),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
  });

/** The number of incidents in a state, without them. */
export const incidentCountQuery = (state: Incident["state"]) => incidentPageQuery(state, 1, 1);

/**
 * decide resolves incidents, several with one call, of which those that can be are resolved. It acknowledges
 * them one after the other; the first refusal ends it.
 */
export async function decide(what: IncidentCommand, ids: readonly string[], why: string): Promise<void> {
  if (what === "resolve" && ids.length > 1) {
    const left = unresolvedText((await call("post", "/api/v1/incidents/resolve", { body: { ids: [...ids], why: why || undefined } })).item);
    if (left) throw new Error(left);
    return;
  }
  for (const incidentId of ids) {
    const to = { path: { incidentId }, body: { why: why || undefined } };
    if (what === "ack") await call("post", "/api/v1/incidents/{incidentId}/ack", to);
    else await call("post", "/api/v1/incidents/{incidentId}/resolve", to);
  }
}
