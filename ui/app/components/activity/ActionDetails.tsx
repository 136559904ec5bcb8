/** One action: its times, its failures by cause, the newest errors, and its hosts with their outcomes. */
import type { ActionStatus } from "~/api/types";
import { ProgressIcon } from "~/components/base/Badge";
import { CopyIcon } from "~/components/base/CopyBlock";
import { type Fact, Facts } from "~/components/base/Page";
import { TextLink } from "~/components/base/TextLink";
import { Ago, Exact } from "~/components/base/Time";
import { lackQuery } from "~/util/activity/action";
import type { ActivitySearch } from "~/util/activity/activitySearch";
import { sentence } from "~/util/words";
import { ActionHosts } from "./ActionHosts";
import classes from "./Activity.module.css";

interface Props {
  action: ActionStatus;
  search: ActivitySearch;
  onShow: (change: Pick<ActivitySearch, "state" | "hosts">) => void;
}

export function ActionDetails({ action: a, search, onShow }: Props) {
  const rows: Fact[] = [
    ["Ordered", <Exact key="c" at={a.creationTime} />],
    ...(a.startTime && a.startTime !== a.creationTime ? [["Begins", <Exact key="s" at={a.startTime} />] as Fact] : []),
    ...(a.expiration ? [["Expires", <Exact key="x" at={a.expiration} />] as Fact] : []),
    ...(a.completionTime ? [["Last answer", <Exact key="e" at={a.completionTime} />] as Fact] : []),
    ...(a.cancellationTime ? [["Cancelled", <Exact key="k" at={a.cancellationTime} />] as Fact] : []),
    ...(a.policyId
      ? []
      : [
          [
            "Action id",
            <span key="i" className={classes.id}>
              <span className="mono">{a.actionId}</span>
              <CopyIcon text={a.actionId} label="Copy the action id" />
            </span>,
          ] as Fact,
        ]),
  ];
  return (
    <div className={classes.details}>
      <div>
        <Facts rows={rows} />
        <div className={classes.links}>
          {a.policyId ? (
            <TextLink to="/agents" search={{ kuery: lackQuery(a.policyId, a.revision ?? 0) }} size="sm" underline="always">
              Show the hosts without this revision
            </TextLink>
          ) : (
            <TextLink to="/audit" search={{ subject: a.actionId }} size="sm" underline="always">
              Show it in the audit trail
            </TextLink>
          )}
        </div>
      </div>
      <div>
        <Causes action={a} />
        <Errors action={a} />
      </div>
      {a.policyId ? null : <ActionHosts action={a} state={search.state} page={search.hosts ?? 1} onShow={onShow} />}
    </div>
  );
}

function Causes({ action: a }: { action: ActionStatus }) {
  if (!a.causes?.length) return null;
  return (
    <section className={classes.causes} aria-label="Failures by cause">
      <h2>Failures by cause</h2>
      <ul>
        {a.causes.map((c) => (
          <li key={`${c.state} ${c.code}`} data-tone="bad">
            <span className={classes.causeIcon}>
              <ProgressIcon state={c.state === "rolled_back" ? "rolled_back" : "failed"} />
            </span>
            <span>
              <b>{c.count.toLocaleString()}</b> {sentence(c.text)}
              {c.sample ? <span className={classes.sub}>{sentence(c.sample)}</span> : null}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Errors({ action: a }: { action: ActionStatus }) {
  if (a.latestErrors.length === 0) return a.causes?.length ? null : <p className={classes.none}>No host has reported an error.</p>;
  return (
    <section className={classes.causes} aria-label="Newest errors">
      <h2>{a.nbAgentsFailed > a.latestErrors.length ? `The newest ${a.latestErrors.length} of ${a.nbAgentsFailed.toLocaleString()} errors` : "Errors"}</h2>
      <ul>
        {a.latestErrors.map((e) => (
          <li key={`${e.agentId} ${e.timestamp}`}>
            <span>
              <TextLink to="/agents/$agentId" params={{ agentId: e.agentId }} inherit underline="always">
                {e.hostname || e.agentId}
              </TextLink>{" "}
              <span className={classes.faint}>
                <Ago at={e.timestamp} />
              </span>
              <span className={classes.sub}>{sentence(e.error)}</span>
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}
