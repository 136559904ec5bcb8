/** Queries of what concerns the whole installation: what waits for a person, numbers over time, saved views, settings, the audit trail. */
import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { call } from "./client";
import { keys, POLL_MS } from "./queries";
import type { View } from "./types";

export const attentionQuery = queryOptions({
  queryKey: keys.attention,
  queryFn: ({ signal }) => call("get", "/api/v1/attention", { signal }),
  refetchInterval: POLL_MS,
});

export const WINDOWS = ["24h", "7d", "30d"] as const;
export type SeriesWindow = (typeof WINDOWS)[number];

/** The server takes a sample every five minutes. */
const SAMPLE_MS = 300_000;

export const seriesQuery = (window: SeriesWindow) =>
  queryOptions({
    queryKey: [...keys.series, window] as const,
    queryFn: ({ signal }) => call("get", "/api/v1/series", { query: { window }, signal }),
    placeholderData: keepPreviousData,
    staleTime: SAMPLE_MS / 5,
    refetchInterval: SAMPLE_MS,
  });

/** The rollouts that are not over, without drafts. */
export const activeRolloutsQuery = queryOptions({
  queryKey: [...keys.rollouts, "active"] as const,
  queryFn: async ({ signal }) =>
    (await call("get", "/api/v1/rollouts", { query: { state: ["running", "paused", "cancelling"], page: 1, perPage: 50 }, signal })).items,
  refetchInterval: POLL_MS,
});

export const viewsQuery = queryOptions({
  queryKey: keys.views,
  queryFn: async ({ signal }) => (await call("get", "/api/v1/views", { signal })).items,
});

export const saveView = (page: View["page"], name: string, search: string) => call("post", "/api/v1/views", { body: { page, name, search } });

export const settingsQuery = queryOptions({
  queryKey: keys.settings,
  queryFn: async ({ signal }) => (await call("get", "/api/v1/settings", { signal })).items,
});

export const TRAIL_PER_PAGE = 50;

export interface TrailFilter {
  actor?: string;
  /** Without the server's own steps. */
  people?: boolean;
  verb?: string;
  subject?: string;
  /** Words that an entry contains. */
  q?: string;
  since?: string;
  until?: string;
}

export const trailQuery = (filter: TrailFilter, page: number, perPage = TRAIL_PER_PAGE) =>
  queryOptions({
    queryKey: [...keys.trails, { ...filter, page, perPage }] as const,
    queryFn: ({ signal }) => call("get", "/api/v1/audit", { query: { ...filter, page, perPage }, signal }),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
  });
