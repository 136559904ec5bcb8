/** How far a rollout or a batch is, as one thin stacked bar of the groups of its grid. */
import type { Counts } from "~/api/types";
import { countsText, groupLook } from "~/util/grid/gridClass";
import { BAR_GROUPS, groupCounts } from "~/util/rollout/rolloutCounts";
import classes from "./ProgressBar.module.css";

export function ProgressBar({ counts, large }: { counts: Counts; large?: boolean }) {
  const groups = groupCounts(counts);
  const text = countsText(groups);
  return (
    <div className={classes.bar} data-large={large || undefined} role="img" aria-label={text} title={text}>
      {BAR_GROUPS.map((g) => (groups[g] > 0 ? <span key={g} data-group={g} data-tone={groupLook[g].tone} style={{ flexGrow: groups[g] }} /> : null))}
    </div>
  );
}
