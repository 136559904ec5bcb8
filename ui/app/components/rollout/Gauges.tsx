import type { Exposure, Rollout } from "~/api/types";
import { exposureGauge, failureGauges, provedText, type Gauge } from "~/util/rolloutCounts";
import { Panel } from "../Blocks";
import classes from "./Rollout.module.css";

/** How close the rollout is to the limits that pause it. */
export function Gauges({ rollout: r }: { rollout: Rollout }) {
  const failures = failureGauges(r);
  return (
    <Panel title="Limits that pause it">
      <div className={classes.gauges}>
        {failures.map((g) => <GaugeBar key={g.text} title={g.figure ? "Failed percentage" : "Failures"} gauge={g} />)}
        {failures.length === 0 ? <div><div className={classes.gaugeHead}>Failures</div><div className={classes.note}>{r.forced ? `${r.forced.by} forced it: failures no longer pause it.${r.forced.why ? ` “${r.forced.why}”` : ""}` : "Its plan ignores failures."}</div></div> : null}
        {r.exposure ? <ExposureGauge exposure={r.exposure} /> : (
          <div><div className={classes.gaugeHead}>Exposure</div><div className={classes.note}>No fleet-wide limit is set, or it has not been evaluated yet.</div></div>
        )}
      </div>
      {r.forgiven && failures.length > 0 ? <div className={classes.note}>{r.forgiven} earlier {r.forgiven === 1 ? "failure no longer counts" : "failures no longer count"}.</div> : null}
    </Panel>
  );
}

export function ExposureGauge({ exposure: e }: { exposure: Exposure }) {
  const hours = Math.min(e.healthy_hours, e.needed_hours);
  const proved = e.healthy_hours >= e.needed_hours;
  return (
    <>
      <GaugeBar title={`Exposure of ${e.version}`} gauge={exposureGauge(e)} quiet={proved} />
      <GaugeBar
        title="Healthy agent-hours"
        quiet
        gauge={{ value: hours, limit: e.needed_hours, over: false, text: provedText(e) }}
        figure={`${e.healthy_hours.toFixed(e.needed_hours < 1 ? 2 : 1)} / ${e.needed_hours}`}
      />
      {e.tightest ? (
        <GaugeBar
          title={`Closest to its limit: ${e.tightest.label} ${e.tightest.value}`}
          quiet={proved}
          gauge={{ value: e.tightest.exposed, limit: e.tightest.limit, over: e.tightest.exposed >= e.tightest.limit && !proved, text: `${e.tightest.exposed} of ${e.tightest.fleet} agents, at most ${e.tightest.limit} allowed` }}
        />
      ) : null}
    </>
  );
}

function GaugeBar({ title, gauge: g, figure = g.figure, quiet }: { title: string; gauge: Gauge; figure?: string; quiet?: boolean }) {
  const full = g.limit <= 0 ? (g.value > 0 ? 100 : 0) : Math.min(100, (g.value * 100) / g.limit);
  const shown = figure ?? `${g.value.toLocaleString()} / ${g.limit.toLocaleString()}`;
  return (
    <div role="group" aria-label={title}>
      <div className={classes.gaugeHead}><span>{title}</span><b>{shown}</b></div>
      <div className={classes.gauge} data-tone={g.over ? "bad" : full >= 67 && !quiet ? "warn" : undefined} aria-hidden><span style={{ width: `${full}%` }} /></div>
      <div className={classes.note}>{g.text}</div>
    </div>
  );
}
