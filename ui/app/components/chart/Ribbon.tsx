/** The health of the hosts of each site: one thin bar a row, with what is wrong in words. */
import { Link, type LinkProps } from "@tanstack/react-router";
import { type HealthCounts, ribbonParts, ribbonText, ribbonTotal } from "~/util/chart/ribbon";
import classes from "./Ribbon.module.css";

export interface RibbonRow {
  key: string;
  label: string;
  counts: HealthCounts;
  link?: Pick<LinkProps, "to" | "params" | "search" | "hash">;
}

export function Ribbon({ label, rows }: { label: string; rows: readonly RibbonRow[] }) {
  return (
    <ul className={classes.rows} aria-label={label}>
      {rows.map((row) => (
        <li key={row.key}>
          {row.link ? (
            <Link {...row.link} className={classes.row} data-link>
              <Row row={row} />
            </Link>
          ) : (
            <div className={classes.row}>
              <Row row={row} />
            </div>
          )}
        </li>
      ))}
    </ul>
  );
}

function Row({ row }: { row: RibbonRow }) {
  return (
    <>
      <span className={classes.label}>{row.label}</span>
      <span className={classes.total}>
        {ribbonTotal(row.counts).toLocaleString()}
        <span className="sr-only"> hosts</span>
      </span>
      <span className={classes.bar} aria-hidden>
        {ribbonParts(row.counts).map((p) => (
          <span
            key={p.health}
            className={classes.part}
            data-hatched={p.hatched || undefined}
            style={{ flexGrow: p.count, backgroundColor: `var(${p.color})` }}
          />
        ))}
      </span>
      <span className={classes.words}>{ribbonText(row.counts)}</span>
    </>
  );
}
