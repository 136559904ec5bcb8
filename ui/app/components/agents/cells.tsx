/** The cells of the agents table. Health and upgrade are two columns: a running upgrade does not hide how a host is. */
import { IconArrowRight } from "@tabler/icons-react";
import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import type { Agent } from "~/api/types";
import { HealthBadge, ProgressBadge } from "~/components/base/Badge";
import type { Column } from "~/components/base/DataTable";
import { useClock } from "~/components/base/Now";
import { type AgentColumn, COLUMNS, type ColumnId } from "~/util/agents/agentColumns";
import { hostOf, osOf } from "~/util/agents/facts";
import { isOver } from "~/util/state";
import { exactWithZone, shortTime } from "~/util/time";
import classes from "./Agents.module.css";

/** The version that is wanted, if the host does not run it. */
const wantedOf = (a: Agent): string | undefined => (a.desired_version && a.desired_version !== a.agent.version ? a.desired_version : undefined);

function HostCell({ agent }: { agent: Agent }) {
  const host = hostOf(agent);
  return (
    <div className={classes.cell}>
      <div className={classes.host}>
        <Link to="/agents/$agentId" params={{ agentId: agent.id }} className={classes.name} title={host} data-row-link>
          {host}
        </Link>
        {agent.tags.length > 0 ? (
          <span className={classes.tags} title={agent.tags.join(", ")}>
            {agent.tags.join("  ")}
          </span>
        ) : null}
        <span className={classes.narrow}>
          <VersionCell agent={agent} />
          {agent.progress && !isOver(agent.progress.state) ? <ProgressBadge progress={agent.progress} /> : null}
        </span>
      </div>
    </div>
  );
}

function VersionCell({ agent }: { agent: Agent }) {
  const wanted = wantedOf(agent);
  const runs = agent.agent.version || "unknown";
  return (
    <span className={`mono ${classes.version}`} title={wanted ? `Runs ${runs}, wants ${wanted}` : undefined}>
      {runs}
      {wanted ? (
        <>
          <IconArrowRight size={12} aria-label="wants" />
          {wanted}
        </>
      ) : null}
    </span>
  );
}

function UpgradeCell({ agent }: { agent: Agent }) {
  const p = agent.progress;
  if (!p) return <span className={classes.quiet}>–</span>;
  const when = p.state === "scheduled" ? p.until : p.since;
  return (
    <span className={classes.upgrade} data-state={p.state}>
      <ProgressBadge progress={p} />
      {when ? (
        <span className={classes.quiet}>
          {p.state === "scheduled" ? "for " : ""}
          <Short at={when} />
        </span>
      ) : null}
    </span>
  );
}

/** A time where there is little room. */
function Short({ at }: { at: string }) {
  const now = useClock();
  const exact = useMemo(() => exactWithZone(at), [at]);
  return (
    <time dateTime={at} title={exact}>
      {shortTime(at, now)}
    </time>
  );
}

const cells: Record<ColumnId, (a: Agent, policyName: (id: string) => string) => React.ReactNode> = {
  host: (a) => <HostCell agent={a} />,
  health: (a) => (a.health ? <HealthBadge health={a.health} /> : null),
  version: (a) => <VersionCell agent={a} />,
  upgrade: (a) => <UpgradeCell agent={a} />,
  policy: (a, policyName) =>
    a.policy_id ? <span title={policyName(a.policy_id)}>{policyName(a.policy_id)}</span> : <span className={classes.quiet}>none</span>,
  seen: (a) => (a.last_checkin ? <Short at={a.last_checkin} /> : "never"),
  os: (a) => osOf(a) || <span className={classes.quiet}>–</span>,
  site: (a) => a.site || <span className={classes.quiet}>–</span>,
  enrolled: (a) => <Short at={a.enrolled_at} />,
  message: (a) => <span title={a.last_checkin_message}>{a.last_checkin_message}</span>,
};

/** Below 640 px a row has its host, with versions, and its health. */
const NARROW: readonly ColumnId[] = ["host", "health"];

export const tableColumns = (shown: readonly AgentColumn[], policyName: (id: string) => string): Column<Agent>[] =>
  COLUMNS.filter((c) => shown.includes(c)).map((c) => ({
    id: c.sort ?? c.id,
    header: c.header,
    sort: !!c.sort,
    width: c.width ? `${c.width}px` : undefined,
    wide: !NARROW.includes(c.id),
    cell: (a) => cells[c.id](a, policyName),
  }));
