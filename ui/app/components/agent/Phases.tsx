/** The phases of an upgrade as a waterfall: when each began and how long it lasted, to scale. */

import type { TimelineEntry } from "~/api/types";
import { useClock } from "~/components/base/Now";
import { phasesOf } from "~/util/agent/timeline";
import { isOver, progressTone, progressWord } from "~/util/state";
import { clock, duration, exactWithZone } from "~/util/time";
import { sentence } from "~/util/words";
import classes from "./Phases.module.css";

export function Phases({ entry, label }: { entry: TimelineEntry; label: string }) {
  const now = useClock();
  const phases = phasesOf(entry, now);
  if (phases.length === 0) return null;
  return (
    <table className={classes.phases} aria-label={label}>
      <thead className="sr-only">
        <tr>
          <th>Phase</th>
          <th>Began</th>
          <th>Share of the whole</th>
          <th>Lasted</th>
        </tr>
      </thead>
      <tbody>
        {phases.map((p, i) => (
          <tr key={`${i} ${p.state}`} data-tone={progressTone(p.state)}>
            <th scope="row">{progressWord[p.state] ?? p.state}</th>
            <td className={classes.at}>
              <time dateTime={p.at} title={exactWithZone(p.at)}>
                {clock(p.at)}
              </time>
            </td>
            <td className={classes.track} aria-hidden>
              <span
                className={classes.bar}
                data-end={isOver(p.state) || undefined}
                data-open={p.open || undefined}
                style={{ marginInlineStart: `${p.from * 100}%`, width: `${p.share * 100}%` }}
              />
            </td>
            <td className={classes.ms}>{p.ms === undefined ? "" : `${p.open ? "so far " : ""}${duration(p.ms)}`}</td>
            {p.text ? <td className={classes.text}>{sentence(p.text)}</td> : null}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
