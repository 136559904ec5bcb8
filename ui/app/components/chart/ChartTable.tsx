import { type ChartLine, pointTime, thinned } from "~/util/chart/series";

/** More rows than these take a screen reader minutes. */
const MOST_ROWS = 24;

interface Props {
  label: string;
  lines: readonly ChartLine[];
  times: readonly number[];
  value: (n: number) => string;
}

/** The values of a chart for screen readers. */
export function ChartTable({ label, lines, times, value }: Props) {
  return (
    <div className="sr-only">
      {/* A table itself is never narrower than its text, and would widen the page. */}
      <table>
        <caption>{label}</caption>
        <thead>
          <tr>
            <th scope="col">Time</th>
            {lines.map((l) => (
              <th key={l.key} scope="col">
                {l.label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {thinned(times.length, MOST_ROWS).map((i) => (
            <tr key={i}>
              <th scope="row">{pointTime(times[i]!)}</th>
              {lines.map((l) => (
                <td key={l.key}>{typeof l.values[i] === "number" ? value(l.values[i]!) : "no sample"}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
