import { Fragment } from "react";
import { diffHunks } from "~/util/fleet/textDiff";
import classes from "./Fleet.module.css";

const kinds: Record<string, string> = { "+": "added", "-": "removed" };

/** The difference of two texts, with three lines around each change. Equal texts have none. */
export function DiffView({ before, after, label }: { before: string; after: string; label: string }) {
  const hunks = diffHunks(before, after);
  if (hunks.length === 0) return null;
  return (
    <pre className={classes.diff} tabIndex={0} role="group" aria-label={label}>
      {hunks.map((lines, h) => (
        <Fragment key={h}>
          {h > 0 ? <span data-kind="gap">⋯</span> : null}
          {lines.map((l, i) => (
            <span key={i} data-kind={kinds[l[0]!]}>
              {l[0]} {l.slice(1)}
              {"\n"}
            </span>
          ))}
        </Fragment>
      ))}
    </pre>
  );
}
