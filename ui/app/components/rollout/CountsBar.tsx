import type { Counts } from "~/api/types";
import { barLabel, partLabel, PARTS, partsOf } from "~/util/rolloutCounts";
import classes from "./Rollout.module.css";

export function CountsBar({ counts, large }: { counts: Counts; large?: boolean }) {
  const parts = partsOf(counts);
  return (
    <div className={classes.bar} data-size={large ? "large" : undefined} role="img" aria-label={barLabel(counts)}>
      {PARTS.map((p) => (parts[p] > 0 ? <span key={p} data-part={p} style={{ flexGrow: parts[p] }} /> : null))}
    </div>
  );
}

/** The legend of the bar, with the numbers. */
export function Legend({ counts }: { counts: Counts }) {
  const parts = partsOf(counts);
  const more: [string, number][] = [
    ["offline", counts.held], ["rolled back", counts.rolled_back], ["withdrawn", counts.withdrawn], ["expired", counts.expired], ["cancelled", counts.cancelled],
  ];
  const also = more.filter(([, n]) => n > 0).map(([word, n]) => `${n.toLocaleString()} ${word}`);
  return (
    <>
      <ul className={classes.legend} aria-label="Targets by state">
        {PARTS.filter((p) => parts[p] > 0 || p === "done" || p === "bad").map((p) => (
          <li key={p}><span className={classes.key} data-part={p} aria-hidden /><b>{parts[p].toLocaleString()}</b> {partLabel[p]}</li>
        ))}
        <li><b>{counts.total.toLocaleString()}</b> in all</li>
      </ul>
      {also.length > 0 ? <div className={classes.note}>Among them {also.join(", ")}.</div> : null}
    </>
  );
}
