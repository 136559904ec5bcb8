/** Two or more lines over time, such as a canary against the other hosts, with the band that is expected. */
import { type ReactNode, useMemo } from "react";
import { type ChartLine, compact, seconds, type Values } from "~/util/chart/series";
import { PlotFrame } from "./PlotFrame";

interface Props {
  label: string;
  times: readonly string[];
  lines: readonly ChartLine[];
  /** The range in which lines are expected. The legend names it. */
  band?: { label: string; low: Values; high: Values };
  height?: number;
  /** Of values that are not counts, such as percentages. */
  format?: (n: number) => string;
  most?: number;
  empty?: ReactNode;
}

const DASH = [6, 4];
const BAND_COLOR = "--line";

export function LineChart({ label, times, lines, band, height = 180, format, most, empty }: Props) {
  const at = useMemo(() => seconds(times), [times]);
  const data = useMemo(() => [...(band ? [band.high, band.low] : []), ...lines.map((l) => l.values)], [lines, band]);
  const edges = band ? [{ key: "high" }, { key: "low" }] : [];
  const series = [...edges, ...lines.map((l) => ({ key: l.key, stroke: l.color, width: 2, dash: l.dashed ? DASH : undefined }))];
  return (
    <PlotFrame
      label={label}
      lines={lines}
      times={at}
      series={series}
      data={data}
      height={height}
      counts={!format}
      most={most}
      band={band ? { upper: 0, lower: 1, fill: BAND_COLOR, label: band.label } : undefined}
      mark={format ?? compact}
      value={format ?? ((n) => n.toLocaleString())}
      empty={empty}
    />
  );
}
