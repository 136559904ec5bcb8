/** Lines of charts from the server's series: their order, colours, sums and words. */
import type { Health, Series, SeriesLine } from "~/api/types";
import { healthTone, healthWord } from "~/util/state";
import { compareVersions } from "~/util/version";

export type Values = readonly (number | null)[];

export interface ChartLine {
  key: string;
  label: string;
  /** A variable of app.css. */
  color: string;
  values: Values;
  /** Lines differ by this too, since not everyone sees their colours. */
  dashed?: boolean;
}

/** Colours of versions in app.css, --series-1 and so on; those beside each other differ in lightness. */
const SERIES_COLORS = 10;

/**
 * versionLines has the newest version first, which is lowest in a stack: its growth is measured from
 * the axis. Colours are given from the oldest on, so that a new version does not change those of the
 * others.
 */
export function versionLines(series: Pick<Series, "versions">): ChartLine[] {
  const named = series.versions.filter((l) => l.name !== "").sort((a, b) => compareVersions(a.name, b.name));
  const lines = named.map((l, i) => ({ key: l.name, label: l.name, color: `--series-${(i % SERIES_COLORS) + 1}`, values: l.values ?? [] }));
  const rest = series.versions.find((l) => l.name === "");
  if (rest) lines.unshift({ key: "", label: "Other versions", color: "--series-other", values: rest.values });
  return lines.reverse();
}

/** Lowest in a stack come the hosts that somebody must look at. */
export const HEALTHS: readonly Health[] = ["failed", "degraded", "offline", "enrolling", "healthy", "inactive", "uninstalled", "unenrolled"];

/** healthColor is a variable of app.css. Hosts that are not offline, but away for good, are fainter. */
export function healthColor(health: Health): string {
  if (health === "inactive" || health === "uninstalled" || health === "unenrolled") return "--line";
  return `--${healthTone(health)}-fill`;
}

/** healthLines leaves out healths that no host had. A health of a newer server comes last. */
export function healthLines(series: Pick<Series, "health">): ChartLine[] {
  const rank = (l: SeriesLine) => (HEALTHS.indexOf(l.name as Health) + HEALTHS.length + 1) % (HEALTHS.length + 1);
  return series.health
    .filter((l) => l.values.some((v) => (v ?? 0) > 0))
    .sort((a, b) => rank(a) - rank(b))
    .map((l) => ({ key: l.name, label: healthWord[l.name as Health] ?? l.name, color: healthColor(l.name as Health), values: l.values }));
}

/** stacked adds to each line those before it. Where no line has a sample there is a gap. */
export function stacked(lines: readonly Pick<ChartLine, "values">[]): (number | null)[][] {
  const length = lines[0]?.values.length ?? 0;
  const sums = new Array<number>(length).fill(0);
  const sampled = sums.map((_, i) => lines.some((l) => l.values[i] !== null && l.values[i] !== undefined));
  return lines.map((l) =>
    sums.map((_, i) => {
      sums[i]! += l.values[i] ?? 0;
      return sampled[i] ? sums[i]! : null;
    }),
  );
}

/** totals are the sums of all lines. */
export const totals = (lines: readonly Pick<ChartLine, "values">[]): (number | null)[] => stacked(lines).at(-1) ?? [];

/** lastSample returns the last time at which a line has a value, or -1. */
export function lastSample(lines: readonly Pick<ChartLine, "values">[]): number {
  for (let i = (lines[0]?.values.length ?? 0) - 1; i >= 0; i--) if (lines.some((l) => typeof l.values[i] === "number")) return i;
  return -1;
}

/** thinned returns at most so many of the positions up to length, evenly, with the last one. */
export function thinned(length: number, most: number): number[] {
  if (length <= most) return Array.from({ length }, (_, i) => i);
  return Array.from({ length: most }, (_, i) => Math.round(((i + 1) * length) / most) - 1);
}

export function seconds(times: readonly string[]): number[] {
  return times.map((t) => Date.parse(t) / 1000);
}

const compactFormat = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });

export const compact = (n: number): string => compactFormat.format(n);

const DAY_S = 86_400;
const dayFormat = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const hourFormat = new Intl.DateTimeFormat(undefined, { hour: "numeric", minute: "2-digit" });
const bothFormat = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "numeric", minute: "2-digit" });

/** axisTime is a mark of an axis whose marks are step seconds apart. Midnight is a day. */
export function axisTime(at: number, step: number): string {
  const date = new Date(at * 1000);
  const midnight = date.getHours() === 0 && date.getMinutes() === 0;
  return (step >= DAY_S || midnight ? dayFormat : hourFormat).format(date);
}

export const pointTime = (at: number): string => bothFormat.format(new Date(at * 1000));

/** pointText reads all values of one time, for screen readers. */
export function pointText(lines: readonly ChartLine[], at: number, time: string, format: (n: number) => string): string {
  const values = lines.map((l) => (typeof l.values[at] === "number" ? `${l.label} ${format(l.values[at]!)}` : null)).filter((t) => t !== null);
  return `${time}: ${values.length > 0 ? values.join(", ") : "no sample"}`;
}

/** share is a percentage that is never rounded up to 100, nor down to 0. */
export function share(part: number, whole: number): string {
  if (whole === 0 || part === 0) return "0 %";
  if (part >= whole) return "100 %";
  const exact = (part * 100) / whole;
  if (exact < 0.1) return "< 0.1 %";
  const digits = exact > 99 || exact < 10 ? 1 : 0;
  return `${Math.min(exact, 99.9).toFixed(digits)} %`;
}
