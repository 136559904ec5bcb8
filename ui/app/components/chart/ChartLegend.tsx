import type { ChartLine } from "~/util/chart/series";
import classes from "./Chart.module.css";

interface Props {
  lines: readonly ChartLine[];
  /** Position of the values that are shown, and its time. */
  at: number;
  time: string;
  value: (n: number) => string;
  /** The name of the band behind the lines. */
  band?: string;
}

/** The lines with their values at one time. Values are as wide as the largest one, so that the legend stands still. */
export function ChartLegend({ lines, at, time, value, band }: Props) {
  return (
    <figcaption className={classes.legend}>
      <span className={classes.time}>{time}</span>
      <ul className={classes.entries}>
        {lines.map((l) => {
          const now = l.values[at];
          return (
            <li key={l.key} className={classes.entry}>
              <span className={classes.swatch} data-dashed={l.dashed || undefined} style={{ color: `var(${l.color})` }} aria-hidden />
              <span>{l.label}</span>
              <span className={classes.value} style={{ minWidth: `${widest(l.values, value)}ch` }}>
                {typeof now === "number" ? value(now) : "–"}
              </span>
            </li>
          );
        })}
        {band ? (
          <li className={classes.entry}>
            <span className={classes.swatch} data-band aria-hidden />
            <span>{band}</span>
          </li>
        ) : null}
      </ul>
    </figcaption>
  );
}

function widest(values: ChartLine["values"], value: (n: number) => string): number {
  return value(values.reduce<number>((most, v) => Math.max(most, v ?? 0), 0)).length;
}
