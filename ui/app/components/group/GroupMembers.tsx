import type { Counts, GroupMember, GroupProgress, GroupStatus } from "~/api/types";
import { failedText, percentOver } from "~/util/rollout/rolloutCounts";
import { durationText } from "~/util/rollout/rolloutText";
import { plural, sentence } from "~/util/words";
import { RolloutBadge } from "../base/Badge";
import { type Column, DataTable } from "../base/DataTable";
import { Section } from "../base/Page";
import { ProgressBar } from "../base/ProgressBar";
import { TextLink } from "../base/TextLink";
import classes from "./Group.module.css";
import { MemberBadge } from "./GroupBadges";

interface Row {
  index: number;
  member: GroupMember;
  progress: GroupProgress;
  component?: string;
  soak?: string;
}

const columns: Column<Row>[] = [
  {
    id: "name",
    header: "Member",
    cell: (r) => (
      <>
        <b>
          {r.index + 1}. {r.progress.name}
        </b>
        <div className={classes.sub}>
          {r.component ? `component ${r.component}` : "agents"}
          {r.soak && r.soak !== "0s" ? `, then ${durationText(r.soak)} of observation` : ""}
        </div>
      </>
    ),
  },
  { id: "version", header: "To", cell: (r) => <span className="mono">{r.progress.version}</span> },
  {
    id: "state",
    header: "State",
    nowrap: true,
    cell: (r) => (
      <>
        {r.progress.rollout_state && r.progress.state === "running" ? (
          <RolloutBadge rollout={{ state: r.progress.rollout_state, waiting: r.progress.waiting }} />
        ) : (
          <MemberBadge state={r.progress.state} />
        )}
      </>
    ),
  },
  { id: "progress", header: "Hosts", width: "28%", cell: (r) => (r.progress.counts && r.progress.counts.total > 0 ? <Bar counts={r.progress.counts} /> : "–") },
  {
    id: "note",
    header: "Why",
    wide: true,
    cell: (r) => {
      const note = r.member.error ?? (r.progress.stop ? r.progress.stop.text : r.progress.waiting?.[0]?.text);
      return note ? sentence(note) : "–";
    },
  },
  {
    id: "rollout",
    header: "Rollout",
    nowrap: true,
    cell: (r) => (
      <>
        {r.member.rollout_id ? (
          <TextLink
            to="/rollouts/$rolloutId"
            params={{ rolloutId: r.member.rollout_id }}
            inherit
            underline="always"
            aria-label={`Rollout of ${r.progress.name}`}
          >
            Show it
          </TextLink>
        ) : r.progress.state === "pending" ? (
          <span className={classes.sub}>created at its turn</span>
        ) : (
          "–"
        )}
        {r.progress.rollback_id ? (
          <>
            ,{" "}
            <TextLink
              to="/rollouts/$rolloutId"
              params={{ rolloutId: r.progress.rollback_id }}
              inherit
              underline="always"
              aria-label={`Rollback of ${r.progress.name}`}
            >
              its rollback
            </TextLink>
          </>
        ) : null}
      </>
    ),
  },
];

/** The members of a group in their order, each with the progress of its rollout. */
export function GroupMembers({ group: g }: { group: GroupStatus }) {
  const rows = g.progress.map((progress, index) => ({
    index,
    progress,
    member: g.members[index]!,
    component: g.plan.members[index]?.plan?.component,
    soak: index < g.members.length - 1 ? g.plan.members[index]?.soak : undefined,
  }));
  return (
    <Section title="Members" plain>
      <DataTable label="Members in their order" columns={columns} rows={rows} rowId={(r) => r.progress.name} density="comfortable" />
    </Section>
  );
}

function Bar({ counts: c }: { counts: Counts }) {
  const failed = failedText(c);
  return (
    <div>
      <ProgressBar counts={c} />
      <div className={classes.counts}>
        {percentOver(c)} % of {plural(c.total, "host")} done{c.verifying > 0 ? `, ${c.verifying.toLocaleString()} watched` : ""}
        {failed ? <span data-bad>, {failed}</span> : null}
      </div>
    </div>
  );
}
