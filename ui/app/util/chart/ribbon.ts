/** Health by site, or by anything else, as thin stacked bars. */
import type { Health } from "~/api/types";
import { healthWord } from "~/util/state";
import { HEALTHS, healthColor, share } from "./series";

export type HealthCounts = Partial<Record<Health, number>>;

export interface RibbonPart {
  health: Health;
  count: number;
  color: string;
  /** Failed hosts have a hatch too. */
  hatched: boolean;
}

/** The healthy come first here: a bar is read from its start, and what is wrong stands at its end. */
const ORDER: readonly Health[] = ["healthy", ...HEALTHS.filter((h) => h !== "healthy").reverse()];

export function ribbonParts(counts: HealthCounts): RibbonPart[] {
  return ORDER.filter((h) => (counts[h] ?? 0) > 0).map((health) => ({
    health,
    count: counts[health]!,
    color: healthColor(health),
    hatched: health === "failed",
  }));
}

export const ribbonTotal = (counts: HealthCounts): number => ORDER.reduce((sum, h) => sum + (counts[h] ?? 0), 0);

/** ribbonText is what is worth a word: the share of healthy hosts, then what is wrong, worst first. */
export function ribbonText(counts: HealthCounts): string {
  const total = ribbonTotal(counts);
  if (total === 0) return "No hosts";
  const wrong = HEALTHS.filter((h) => h !== "healthy" && (counts[h] ?? 0) > 0).map((h) => `${counts[h]!.toLocaleString()} ${healthWord[h].toLowerCase()}`);
  return [`${share(counts.healthy ?? 0, total)} healthy`, ...wrong].join(", ");
}
