import type { Exposure, Rollout } from "~/api/types";
import { exposureGauge, failureGauges, percent, type Gauge } from "~/util/rolloutCounts";
import { Panel } from "../Blocks";
import classes from "./Rollout.module.css";

/** How near the rollout is to what stops it. */
export function Gauges({ rollout: r }: { rollout: Rollout }) {
  const failures = failureGauges(r);
  return (
    <Panel title="What would stop it">
      <div className={classes.gauges}>
        {failures.map((g) => <GaugeBar key={g.text} title="Failures" gauge={g} />)}
        {failures.length === 0 ? <div><div className={classes.gaugeHead}>Failures</div><div className={classes.note}>Its plan goes on whatever fails.</div></div> : null}
        {r.exposure ? <ExposureGauge exposure={r.exposure} /> : (
          <div><div className={classes.gaugeHead}>Exposure</div><div className={classes.note}>No fleet-wide limit is set, or it has not been looked at yet.</div></div>
        )}
      </div>
      {r.forced ? <div className={classes.note}>{r.forced.by} forced it: failures stop it no more.{r.forced.why ? ` “${r.forced.why}”` : ""}</div> : null}
      {r.forgiven ? <div className={classes.note}>{r.forgiven} earlier {r.forgiven === 1 ? "failure does" : "failures do"} not count any more.</div> : null}
    </Panel>
  );
}

export function ExposureGauge({ exposure: e }: { exposure: Exposure }) {
  const hours = Math.min(e.healthy_hours, e.needed_hours);
  return (
    <>
      <GaugeBar title={`Exposure of ${e.version}`} gauge={exposureGauge(e)} />
      <GaugeBar
        title="Healthy agent-hours"
        gauge={{ value: hours, limit: e.needed_hours, over: false, text: e.healthy_hours >= e.needed_hours ? "Proved: the limit no longer holds" : `${e.needed_hours - hours < 0.1 ? "almost" : (e.needed_hours - hours).toFixed(1)} hours to go until the limit no longer holds` }}
        figure={`${e.healthy_hours.toFixed(1)} / ${e.needed_hours}`}
      />
      {e.tightest ? (
        <GaugeBar
          title={`Nearest to its limit: ${e.tightest.label} ${e.tightest.value}`}
          gauge={{ value: e.tightest.exposed, limit: e.tightest.limit, over: e.tightest.exposed >= e.tightest.limit && e.healthy_hours < e.needed_hours, text: `${e.tightest.exposed} of ${e.tightest.fleet} agents, ${e.tightest.limit} may` }}
        />
      ) : null}
    </>
  );
}

function GaugeBar({ title, gauge: g, figure }: { title: string; gauge: Gauge; figure?: string }) {
  const full = g.limit <= 0 ? (g.value > 0 ? 100 : 0) : Math.min(100, (g.value * 100) / g.limit);
  const shown = figure ?? `${Number.isInteger(g.value) ? g.value.toLocaleString() : percent(g.value)} / ${Number.isInteger(g.value) ? g.limit.toLocaleString() : percent(g.limit)}`;
  return (
    <div role="group" aria-label={title}>
      <div className={classes.gaugeHead}><span>{title}</span><b>{shown}</b></div>
      <div className={classes.gauge} data-tone={g.over ? "bad" : full >= 67 && !figure ? "warn" : undefined} aria-hidden><span style={{ width: `${full}%` }} /></div>
      <div className={classes.note}>{g.text}</div>
    </div>
  );
}
