/** Sums of the overview. */
import { type SeriesWindow, WINDOWS } from "~/api/overview";
import type { Facet, Health } from "~/api/types";
import { compact } from "~/util/searchParts";

/** What the chart shows, as in the address of the page: the last day's versions unless it names others. */
export interface OverviewSearch {
  window?: SeriesWindow;
  lines?: "health";
}

/** parseOverviewSearch drops unknown values, so that old links still open. */
export const parseOverviewSearch = (raw: Record<string, unknown>): OverviewSearch =>
  compact({ window: WINDOWS.find((w) => w === raw.window), lines: raw.lines === "health" ? ("health" as const) : undefined });

/** share is a percentage with one digit that never rounds up to 100 or down to 0, since "100 % healthy" must be true. */
export function share(part: number, whole: number): string {
  if (whole === 0) return "–";
  const percent = (part / whole) * 100;
  if (percent > 99.9 && part < whole) return "99.9 %";
  if (percent < 0.1 && part > 0) return "0.1 %";
  return `${Number.isInteger(percent) ? percent : percent.toFixed(1)} %`;
}

export const HEALTH_ORDER: readonly Health[] = ["healthy", "degraded", "failed", "offline", "enrolling"];

export interface SiteHealth {
  site: string;
  total: number;
  health: [Health, number][];
  kuery: string;
}

/** sitesOf returns the sites with their health, those with most trouble first. */
export function sitesOf(facet: Facet | undefined): SiteHealth[] {
  const sites = (facet?.values ?? []).map((v) => ({
    site: v.value,
    total: v.count,
    kuery: v.kuery,
    health: HEALTH_ORDER.map((h): [Health, number] => [h, v.health?.[h] ?? 0]).filter(([, n]) => n > 0),
  }));
  const well = (s: SiteHealth) => (s.health.find(([h]) => h === "healthy")?.[1] ?? 0) / Math.max(1, s.total);
  return sites.sort((a, b) => well(a) - well(b) || b.total - a.total);
}

export const countOf = (facet: Facet | undefined, value: string): number => facet?.values.find((v) => v.value === value)?.count ?? 0;
