import { type GridGroup, groupLook } from "~/util/grid/gridClass";
import classes from "./GridSwatch.module.css";

/** The look of a group's cells, as a small picture beside its word. */
export function GridSwatch({ group }: { group: GridGroup }) {
  const { tone, mark } = groupLook[group];
  return (
    <svg className={classes.swatch} data-tone={tone} data-mark={mark} viewBox="0 0 12 12" aria-hidden>
      {mark === "bar" ? null : <rect className={classes.face} x="0.75" y="0.75" width="10.5" height="10.5" rx="1.8" />}
      {mark === "cross" ? <path className={classes.line} d="M3.4 3.4 8.6 8.6M8.6 3.4 3.4 8.6" /> : null}
      {mark === "stripes" ? <path className={classes.line} d="M6.5 .5-.5 7.5M11.5 .5.5 11.5M12.5 5 5 12.5" /> : null}
      {mark === "dot" ? <rect className={classes.hole} x="4" y="4" width="4" height="4" /> : null}
      {mark === "bar" ? <rect className={classes.bar} x="1.5" y="5" width="9" height="2" /> : null}
    </svg>
  );
}
