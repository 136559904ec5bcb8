/** How healthy the hosts of one version are, beside all other hosts. */
import type { Series } from "~/api/types";
import type { ChartLine } from "~/util/chart/series";

/** againstTheRest returns two lines of percentages; a time at which nobody ran a version has no value. */
export function againstTheRest(series: Pick<Series, "versions">, version: string): ChartLine[] {
  const mine = series.versions.filter((l) => l.name === version);
  const others = series.versions.filter((l) => l.name !== version);
  return [
    { key: version, label: version, color: "--move-fill", values: percent(mine) },
    { key: "rest", label: "All other hosts", color: "--series-other", values: percent(others), dashed: true },
  ];
}

function percent(lines: Series["versions"]): (number | null)[] {
  return (lines[0]?.values ?? []).map((_, i) => {
    const hosts = lines.reduce((n, l) => n + (l.values[i] ?? 0), 0);
    const healthy = lines.reduce((n, l) => n + (l.healthy?.[i] ?? 0), 0);
    return hosts === 0 ? null : (100 * healthy) / hosts;
  });
}

/** hasBoth reports whether there is something to compare. */
export const hasBoth = (lines: readonly ChartLine[]): boolean => lines.length === 2 && lines.every((l) => l.values.some((v) => v !== null));
