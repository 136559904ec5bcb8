/** An incident in full: what happened, whom it concerns, and what was decided. */
import type { Decision, Incident } from "~/api/types";
import { Line } from "~/components/base/Page";
import { Prose } from "~/components/base/Prose";
import { TextLink } from "~/components/base/TextLink";
import { Ago } from "~/components/base/Time";
import { incidentKind, incidentText, incidentTitle } from "~/util/incident/incident";
import { closed } from "~/util/words";
import classes from "./Incident.module.css";

const LOOK = { inherit: true, underline: "always" } as const;

export function IncidentText({ incident: i, rollouts }: { incident: Incident; rollouts: ReadonlyMap<string, string> }) {
  const hosts = i.next?.kuery;
  const text = incidentText(i);
  return (
    <div className={classes.incident}>
      <span className={classes.title} title={incidentKind[i.category] ?? i.category}>
        {incidentTitle(i)}
      </span>
      {text ? (
        <span className={classes.text}>
          <Prose>{text}</Prose>
        </span>
      ) : null}
      <span className={classes.sub}>
        <Line>
          {[
            i.agent_id ? (
              <TextLink key="host" to="/agents/$agentId" params={{ agentId: i.agent_id }} {...LOOK}>
                {i.hostname || "the host"}
              </TextLink>
            ) : null,
            hosts ? (
              <TextLink key="hosts" to="/agents" search={{ kuery: hosts }} {...LOOK}>
                Show the hosts
              </TextLink>
            ) : null,
            i.component ? (
              <span key="component">
                component <b>{i.component}</b>
              </span>
            ) : null,
            i.rollout_id ? (
              <span key="rollout">
                rollout{" "}
                <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: i.rollout_id }} {...LOOK}>
                  {rollouts.get(i.rollout_id) ?? "of this incident"}
                </TextLink>
              </span>
            ) : null,
            i.count > 1 ? `opened ${i.count.toLocaleString()} times` : null,
          ]}
        </Line>
      </span>
      {i.recovery_plan ? (
        <span className={classes.plan}>
          <b>Recovery plan.</b> {closed(i.recovery_plan)}
        </span>
      ) : null}
      {i.acked ? <Decided verb="Acknowledged" by={i.acked} /> : null}
      {i.resolved ? <Decided verb="Resolved" by={i.resolved} /> : null}
    </div>
  );
}

function Decided({ verb, by }: { verb: string; by: Decision }) {
  return (
    <span className={`${classes.sub} ${classes.decided}`}>
      {verb} by {by.by} <Ago at={by.at} />
      {by.why ? `: ${closed(by.why)}` : "."}
    </span>
  );
}
