/** The canvas of a chart, with uPlot. It is loaded only by pages that show a chart: see PlotFrame. */
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useScheme } from "~/hooks/useScheme";
import { colorsOf } from "~/util/chart/canvasColor";
import { axisTime } from "~/util/chart/series";
import classes from "./Chart.module.css";

export interface PlotSeries {
  key: string;
  /** Variables of app.css. Without a stroke it is only the edge of a band. */
  stroke?: string;
  fill?: string;
  width?: number;
  dash?: number[];
}

export interface PlotProps {
  /** In seconds. */
  times: readonly number[];
  series: readonly PlotSeries[];
  data: readonly (readonly (number | null)[])[];
  /** The area between two of the series, by their positions. */
  band?: { upper: number; lower: number; fill: string; label: string };
  height: number;
  /** Counts: whole numbers, from zero. Otherwise the axis begins near the least value. */
  counts: boolean;
  /** The axis does not go beyond it: 100 for percentages. */
  most?: number;
  format: (n: number) => string;
  /** The time that is pointed at. */
  at: number | null;
  onPoint: (at: number | null) => void;
}

/** Steps of an axis of counts; uPlot's own include fractions. */
const WHOLE_STEPS = Array.from({ length: 10 }, (_, power) => [1, 2, 5].map((n) => n * 10 ** power)).flat();
const AWAY = { left: -10, top: -10 };

export default function Plot({ times, series, data, band, height, counts, most, format, at, onPoint }: PlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const scheme = useScheme();
  const latest = useRef({ onPoint, format });
  const shape = JSON.stringify([series, band, height, counts, most]);
  const values = useRef<uPlot.AlignedData>([[]]);

  useEffect(() => {
    latest.current = { onPoint, format };
    values.current = [times, ...data] as uPlot.AlignedData;
  });

  // biome-ignore lint/correctness/useExhaustiveDependencies: the canvas has the colors of the scheme
  useEffect(() => {
    const node = box.current!;
    const made = new uPlot(optionsOf(node, JSON.parse(shape), latest), values.current, node);
    plot.current = made;
    const resized = new ResizeObserver(() => made.setSize({ width: node.clientWidth, height: node.clientHeight }));
    resized.observe(node);
    return () => {
      resized.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, scheme]);

  useEffect(() => plot.current?.setData([times, ...data] as uPlot.AlignedData), [times, data]);

  // The arrow keys move the point too.
  useEffect(() => {
    const u = plot.current;
    if (!u || (u.cursor.idx ?? null) === at) return;
    u.setCursor(at === null ? AWAY : { left: u.valToPos(times[at]!, "x"), top: 1 }, false);
  }, [at, times]);

  return <div ref={box} className={classes.plot} style={{ height }} />;
}

type Shape = [PlotProps["series"], PlotProps["band"] | null, number, boolean, number | null | undefined];

/** The range of an axis that does not begin at zero, with a margin; a constant has one too. */
function rangeOf(low: number, high: number, most = Infinity): [number, number] {
  const margin = Math.max((high - low) * 0.15, Math.abs(high) * 0.001, 1e-6);
  return [Math.min(low, high) - margin, Math.min(most, high + margin)];
}

const DIGIT_PX = 7.5;
const axisWidth = (marks: readonly string[] | null) => 14 + DIGIT_PX * Math.max(2, ...(marks ?? []).map((m) => m.length));

function optionsOf(node: HTMLElement, [series, band, height, counts, most]: Shape, latest: { current: Pick<PlotProps, "onPoint" | "format"> }): uPlot.Options {
  const variables = [...series.flatMap((s) => [s.stroke, s.fill]), band?.fill, "--muted", "--line"].filter((v) => v !== undefined);
  const colors = colorsOf(node, variables);
  const color = (name?: string) => (name ? colors[name] : undefined);
  const axis: uPlot.Axis = { stroke: color("--muted"), font: `12px ${getComputedStyle(node).fontFamily}`, ticks: { show: false } };
  return {
    width: node.clientWidth,
    height,
    padding: [8, 20, 0, 0], // half of a time fits beside its tick
    legend: { show: false },
    // A drag would zoom, from which only a double click leads back.
    cursor: { y: false, points: { show: false }, drag: { x: false, y: false, setScale: false } },
    scales: { y: { range: (_, low, high) => (counts ? [0, high > 0 ? high * 1.06 : 1] : rangeOf(low, high, most ?? undefined)) } },
    axes: [
      { ...axis, grid: { show: false }, space: 70, size: 28, values: (_, marks, __, ___, step) => marks.map((m) => axisTime(m, step)) },
      {
        ...axis,
        grid: { stroke: color("--line"), width: 1 },
        space: 36,
        size: (_, marks) => axisWidth(marks),
        gap: 8,
        ...(counts ? { incrs: WHOLE_STEPS } : {}),
        values: (_, marks) => marks.map((m) => latest.current.format(m)),
      },
    ],
    series: [
      {},
      ...series.map(
        (s): uPlot.Series => ({
          label: s.key,
          stroke: color(s.stroke),
          fill: color(s.fill),
          width: s.stroke ? (s.width ?? 1) : 0,
          dash: s.dash,
          points: { show: false },
        }),
      ),
    ],
    bands: band ? [{ series: [band.upper + 1, band.lower + 1], fill: color(band.fill) }] : undefined,
    hooks: { setCursor: [(u) => latest.current.onPoint(u.cursor.idx ?? null)] },
  };
}
