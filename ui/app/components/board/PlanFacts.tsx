/** The plan of a rollout, and what it belongs to. */
import type { Decision, Rollout } from "~/api/types";
import { planText } from "~/util/plan/planYaml";
import { shortHash } from "~/util/rollout/preview";
import { exposedText, provedText } from "~/util/rollout/rolloutCounts";
import { showsRecovery, strategyText } from "~/util/rollout/rolloutText";
import { plural } from "~/util/words";
import { CopyIcon } from "../base/CopyBlock";
import { type Fact, Facts, Section } from "../base/Page";
import { TextLink } from "../base/TextLink";
import { Ago, When } from "../base/Time";
import classes from "./Board.module.css";

export function PlanFacts({ rollout: r, columns = 1 }: { rollout: Rollout; columns?: 1 | 2 }) {
  const link = (id: string) => (
    <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: id }} inherit className="mono">
      {id}
    </TextLink>
  );
  const optional: (Fact | false | undefined)[] = [
    !!r.plan.component && [
      "Component",
      <span key="c" className="mono">
        {r.plan.component}
      </span>,
    ],
    !!r.plan.description && ["Description", r.plan.description],
    ["Strategy", `${strategyText(r.plan)}${r.plan.pace?.emergency ? ", emergency" : ""}`],
    !!r.fleet && [
      "Fleet",
      <TextLink key="f" to="/fleets/$name" params={{ name: r.fleet }} inherit>
        {r.fleet}
      </TextLink>,
    ],
    !!r.group && [
      "Group",
      <TextLink key="g" to="/groups/$groupId" params={{ groupId: r.group }} inherit className="mono">
        {r.group}
      </TextLink>,
    ],
    !!r.rollback_of && ["Rolls back", link(r.rollback_of)],
    !!r.rolled_back_by && ["Rolled back by", link(r.rolled_back_by)],
    !!r.policies?.length && [
      "Holds policies",
      <span key="p" className={classes.links}>
        {r.policies.map((p) => (
          <TextLink key={p} to="/policies/$policyId" params={{ policyId: p }} inherit>
            {p}
          </TextLink>
        ))}
      </span>,
    ],
    !!r.pin && [
      "Started as previewed",
      <span key="pin">
        <span className="mono">{shortHash(r.pin.hash)}</span>, {plural(r.pin.targets, "host")}
      </span>,
    ],
    r.staging && [
      "Staged",
      `${r.staging.answered.toLocaleString()} of ${plural(r.staging.targets, "host")} have answered${r.staging.ended_at ? "" : `, ${r.staging.waiting.toLocaleString()} are waited for`}`,
    ],
    r.lockstep && ["Lockstep", `Phase ${r.lockstep.phase.replaceAll("_", " ")}${r.lockstep.targets ? `, ${plural(r.lockstep.targets, "host")} together` : ""}`],
    r.exposure && ["Exposure", `${exposedText(r.exposure)}. ${provedText(r.exposure)}.`],
    r.approved && ["Approved", <Who key="a" what={r.approved} />],
    r.promoted && ["Promoted", <Who key="m" what={r.promoted} />],
    r.cancelled_now && ["Cancelled at once", <Who key="c" what={r.cancelled_now} />],
    r.forced && ["Forced", <Who key="o" what={r.forced} />],
    [
      "Drafted",
      <span key="d">
        {r.is_automatic ? "by the server, as a policy requires," : `by ${r.created_by}`} <When at={r.created_at} />
      </span>,
    ],
    [
      "Id",
      <span key="id" className={classes.id}>
        <span className="mono">{r.id}</span> <CopyIcon text={r.id} label="Copy the rollout's id" />
      </span>,
    ],
  ];
  return (
    <Section title="Plan" plain>
      <Facts columns={columns} rows={optional.filter((f): f is Fact => !!f)} />
      <details className={classes.details}>
        <summary>The whole plan as YAML</summary>
        <pre className={classes.plan} tabIndex={0} role="group" aria-label="The plan as YAML">
          {planText(r.plan)}
        </pre>
      </details>
      {showsRecovery(r) ? (
        <details className={classes.details} open>
          <summary>Recovery plan</summary>
          <p className={classes.faint}>
            This version changes state so that the earlier one may be unable to read it. A rollback restores the program, not the state.
          </p>
          <pre className={classes.plan}>{r.plan.migration?.recovery_plan || "The plan has none."}</pre>
        </details>
      ) : null}
    </Section>
  );
}

function Who({ what }: { what: Decision }) {
  return (
    <>
      by {what.by} <Ago at={what.at} />
      {what.why ? `: “${what.why}”` : ""}
    </>
  );
}
