/** What all charts with a time axis have: the canvas, a legend with values, the keyboard, and a table behind it. */
import { type KeyboardEvent, lazy, type ReactNode, Suspense, useState } from "react";
import { type ChartLine, lastSample, pointText, pointTime } from "~/util/chart/series";
import classes from "./Chart.module.css";
import { ChartLegend } from "./ChartLegend";
import { ChartTable } from "./ChartTable";
import type { PlotProps } from "./Plot";

const Plot = lazy(() => import("./Plot"));

interface Props extends Pick<PlotProps, "times" | "series" | "data" | "band" | "height" | "counts" | "most"> {
  /** What the chart shows, such as "Versions over time". */
  label: string;
  /** What the legend and the table list. */
  lines: readonly ChartLine[];
  /** Of the axis; the legend and the table have precise values. */
  mark: (n: number) => string;
  value: (n: number) => string;
  empty?: ReactNode;
}

export function PlotFrame({ label, lines, mark, value, empty = "There are no samples yet.", times, height, ...plot }: Props) {
  const [at, setAt] = useState<number | null>(null);
  const last = lastSample(lines);
  if (last < 0)
    return (
      <p className={classes.empty} style={{ minHeight: height }}>
        {empty}
      </p>
    );
  const shown = at !== null && at < times.length ? at : last;
  const time = pointTime(times[shown]!);

  const onKeyDown = (event: KeyboardEvent) => {
    const to = { ArrowLeft: shown - 1, ArrowRight: shown + 1, PageUp: shown + 12, PageDown: shown - 12, Home: 0, End: times.length - 1, Escape: null }[
      event.key
    ];
    if (to === undefined || (to === null && at === null)) return;
    event.preventDefault();
    setAt(to === null ? null : Math.max(0, Math.min(times.length - 1, to)));
  };
  return (
    <figure className={classes.chart} aria-label={label}>
      <ChartLegend lines={lines} at={shown} time={at === null ? "Latest" : time} value={value} band={plot.band?.label} />
      <div
        className={classes.frame}
        role="slider"
        tabIndex={0}
        aria-label={`${label}: time`}
        aria-valuemin={0}
        aria-valuemax={times.length - 1}
        aria-valuenow={shown}
        aria-valuetext={pointText(lines, shown, time, value)}
        onKeyDown={onKeyDown}
        onBlur={() => setAt(null)}
      >
        <Suspense fallback={<div className={classes.plot} style={{ height }} />}>
          <Plot {...plot} times={times} height={height} format={mark} at={at} onPoint={setAt} />
        </Suspense>
      </div>
      <ChartTable label={label} lines={lines} times={times} value={value} />
    </figure>
  );
}
