/** Counts over time, stacked: which versions the hosts run, or how healthy they are. */
import { type ReactNode, useMemo } from "react";
import { type ChartLine, compact, seconds, stacked } from "~/util/chart/series";
import { PlotFrame } from "./PlotFrame";

interface Props {
  label: string;
  times: readonly string[];
  /** The lowest first: see versionLines and healthLines. */
  lines: readonly ChartLine[];
  height?: number;
  empty?: ReactNode;
}

const whole = (n: number) => n.toLocaleString();

export function AreaChart({ label, times, lines, height = 220, empty }: Props) {
  const at = useMemo(() => seconds(times), [times]);
  // The highest is painted first and the others on it: areas are opaque, and their edges are lines of the surface.
  const data = useMemo(() => stacked(lines).reverse(), [lines]);
  const series = lines.map((l) => ({ key: l.key, fill: l.color, stroke: "--surface", width: 1 })).reverse();
  return <PlotFrame label={label} lines={lines} times={at} series={series} data={data} height={height} counts mark={compact} value={whole} empty={empty} />;
}
