import { IconHourglass } from "@tabler/icons-react";
import type { Rollout } from "~/api/types";
import { countdown, waitsOf, waitTitle } from "~/util/rolloutText";
import { exact } from "~/util/time";
import { sentence } from "~/util/words";
import { Panel } from "../Blocks";
import { Ago, useClock } from "../Now";
import classes from "./Rollout.module.css";

/** What a rollout waits for, most important first. */
export function Waits({ rollout: r }: { rollout: Rollout }) {
  const waits = waitsOf(r);
  if (waits.length === 0 && !r.pause_asked && !(r.orders?.length)) return null;
  return (
    <Panel title="Waiting for">
      <ul className={classes.waits}>
        {waits.map((w) => (
          <li key={`${w.code} ${w.since}`} className={classes.wait}>
            <IconHourglass size={16} aria-hidden />
            <span className={classes.waitTitle}>{waitTitle(w.code)}</span>
            {w.until ? <Countdown until={w.until} /> : <span />}
            <span className={classes.waitText}>{sentence(w.text)} Since <Ago at={w.since} />.</span>
          </li>
        ))}
        {r.pause_asked ? (
          <li className={classes.wait}>
            <IconHourglass size={16} aria-hidden />
            <span className={classes.waitTitle}>Pauses when the current batch has ended</span>
            <span />
            <span className={classes.waitText}>Requested by {r.pause_asked.by} <Ago at={r.pause_asked.at} />{r.pause_asked.why ? `: “${r.pause_asked.why}”` : "."}</span>
          </li>
        ) : null}
        {r.orders?.map((o) => (
          <li key={o.id} className={classes.wait}>
            <IconHourglass size={16} aria-hidden />
            <span className={classes.waitTitle}>{orders[o.kind] ?? o.kind}, soon</span>
            <span />
            <span className={classes.waitText}>Requested by {o.by} <Ago at={o.at} />{o.why ? `: “${o.why}”` : "."}</span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

const orders: Record<string, string> = { retry: "Targets are retried", skip: "Targets are skipped", withdraw: "Offers are withdrawn" };

export function Countdown({ until }: { until: string }) {
  const now = useClock();
  return <time className={classes.left} dateTime={until} title={exact(until)}>{Date.parse(until) <= now ? "any moment" : countdown(until, now)}</time>;
}
