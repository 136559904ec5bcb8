/** Counts by cause, or by anything else, as a list of bars. Each entry leads to what it counts. */
import { Link, type LinkProps } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { Tone } from "~/util/state";
import classes from "./Bars.module.css";

export interface Bar {
  key: string;
  label: ReactNode;
  /** A second line, such as the error of one host. */
  hint?: string;
  count: number;
  /** What the count means, such as "3 hosts", for screen readers. */
  countText: string;
  tone?: Tone;
  link: Pick<LinkProps, "to" | "params" | "search" | "hash">;
}

/** A count of one must be seen beside thousands. */
const LEAST_PERCENT = 0.5;

export function Bars({ label, items, tone = "bad" }: { label: string; items: readonly Bar[]; tone?: Tone }) {
  const most = Math.max(1, ...items.map((i) => i.count));
  return (
    <ul className={classes.bars} aria-label={label}>
      {items.map((item) => (
        <li key={item.key}>
          <Link {...item.link} className={classes.bar}>
            <span className={classes.label}>{item.label}</span>
            <span className={classes.count}>
              <span aria-hidden>{item.count.toLocaleString()}</span>
              <span className="sr-only">{item.countText}</span>
            </span>
            <span className={classes.track} aria-hidden>
              <span className={classes.fill} data-tone={item.tone ?? tone} style={{ width: `${Math.max(LEAST_PERCENT, (item.count * 100) / most)}%` }} />
            </span>
            {item.hint ? (
              <span className={classes.hint} title={item.hint}>
                {item.hint}
              </span>
            ) : null}
          </Link>
        </li>
      ))}
    </ul>
  );
}
