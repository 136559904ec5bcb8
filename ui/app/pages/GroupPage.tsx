import { Group as Row, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconArrowLeft, IconHourglass, IconPlayerPause } from "@tabler/icons-react";
import { getRouteApi } from "@tanstack/react-router";
import { ApiError } from "~/api/client";
import { groupQuery, subjectAuditQuery } from "~/api/queries";
import type { Group, GroupProgress, GroupStatus } from "~/api/types";
import { Empty, Facts, Loading, LoadError, PageHead, Panel } from "~/components/Blocks";
import { Callout } from "~/components/Callout";
import { CopyIcon } from "~/components/CopyBlock";
import { GroupControls } from "~/components/group/GroupControls";
import { GroupDraft } from "~/components/group/GroupDraft";
import { Ago } from "~/components/Now";
import { CountsBar } from "~/components/rollout/CountsBar";
import { GroupBadge, MemberBadge, RolloutBadge } from "~/components/rollout/RolloutBadge";
import { TrailOf } from "~/components/rollout/Trail";
import { Countdown } from "~/components/rollout/Waits";
import { TextLink } from "~/components/TextLink";
import { doneOf, groupStopTitle, policyText } from "~/util/group";
import { badOf, percentOver } from "~/util/rolloutCounts";
import { durationText } from "~/util/rolloutText";
import { plural, sentence, sentenceAbout } from "~/util/words";
import classes from "./RolloutsPage.module.css";
import board from "~/components/rollout/Rollout.module.css";

const route = getRouteApi("/shell/groups/$groupId");

export function GroupPage() {
  const { groupId } = route.useParams();
  const query = useQuery(groupQuery(groupId));
  const g = query.data;
  if (!g) {
    return (
      <>
        <Back />
        <PageHead title="Group" />
        {query.error instanceof ApiError && query.error.statusCode === 404 ? (
          <Panel><Empty title="There is no such group">It may have been a draft that was deleted. Its id is <span className="mono">{groupId}</span>.</Empty></Panel>
        ) : query.isError ? <LoadError what="The group" error={query.error} onRetry={() => void query.refetch()} /> : <Panel><Loading /></Panel>}
      </>
    );
  }
  return (
    <>
      <Back />
      <PageHead
        title={g.plan.name}
        hint={(
          <Row gap="xs" mt={4}>
            <GroupBadge state={g.state} />
            <span>{policyText[g.plan.failure_policy]}</span>
            {g.started_at ? <span>· started by {g.started_by} <Ago at={g.started_at} /></span> : <span>· drafted by {g.created_by} <Ago at={g.created_at} /></span>}
            {g.ended_at ? <span>· ended <Ago at={g.ended_at} /></span> : null}
          </Row>
        )}
      >
        {null}
      </PageHead>
      {query.isError ? <LoadError what="The newest state of the group" error={query.error} onRetry={() => void query.refetch()} /> : null}
      {g.plan.description ? <Text size="sm" mb="sm">{sentence(g.plan.description)}</Text> : null}
      <Stack gap="md">
        {g.state === "draft" ? <div><GroupDraft group={g} /></div> : (
          <>
            <Row gap={6} role="group" aria-label="Commands"><GroupControls group={g} /></Row>
            <Stopped group={g} />
            <Waiting group={g} />
          </>
        )}
        <Panel title="Members" aside={<span className={board.note}>{doneOf(g)} of {g.members.length} done, in this order</span>}>
          <ol className={classes.list} aria-label="Members in order">{g.progress.map((p, i) => <Member key={p.name} group={g} index={i} progress={p} />)}</ol>
        </Panel>
        <div className={board.sides}><TrailOf query={subjectAuditQuery(g.id)} /><About group={g} /></div>
      </Stack>
    </>
  );
}

function Back() {
  return <TextLink to="/groups" size="sm" className={classes.back}><IconArrowLeft size={14} aria-hidden /> Groups</TextLink>;
}

/** Why the group is paused or has not completed. */
function Stopped({ group: g }: { group: GroupStatus }) {
  if (!g.stop) return null;
  const kind = g.stop.kind === "operator" ? "warning" : "error";
  return (
    <Callout kind={kind} icon={kind === "warning" ? <IconPlayerPause size={18} aria-hidden /> : undefined} title={`${groupStopTitle[g.stop.kind]}${g.stop.member ? `: ${g.stop.member}` : ""}`}>
      <div>{sentenceAbout(g.stop.text, g.stop.by)}</div>
      {g.state === "paused" && g.stop.kind !== "operator" ? <div>Decide how it goes on: resume it, leave the member out, or roll all members back.</div> : null}
    </Callout>
  );
}

function Waiting({ group: g }: { group: GroupStatus }) {
  if (!g.waiting || g.state === "paused") return null;
  return (
    <Panel title="Waiting for">
      <div className={board.wait}>
        <IconHourglass size={16} aria-hidden />
        <span className={board.waitTitle}>{sentence(g.waiting)}</span>
        {g.until ? <Countdown until={g.until} /> : <span />}
      </div>
    </Panel>
  );
}

function Member({ group: g, index, progress: p }: { group: GroupStatus; index: number; progress: GroupProgress }) {
  const m = g.members[index]!;
  const { soak, plan } = g.plan.members[index] ?? {};
  const component = plan?.component;
  const note = m.error ?? (p.stop ? p.stop.text : p.waiting?.[0]?.text);
  return (
    <li className={classes.card} aria-label={p.name}>
      <div className={classes.head}>
        <div className={classes.title}>
          <b>{index + 1}. {p.name}</b> <span className={classes.goal}>{component ? `component ${component} ` : ""}to {p.version}</span>
          <Text size="xs" c="dimmed" component="div">
            {m.rollout_id ? <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: m.rollout_id }} inherit underline="always">Its rollout</TextLink> : p.state === "pending" ? `Its rollout is created when ${index === 0 ? "the group is started" : "the member before it is done"}` : "It has no rollout"}
            {p.rollback_id ? <> · <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: p.rollback_id }} inherit underline="always">its rollback</TextLink></> : null}
            {soak && soak !== "0s" && index < g.members.length - 1 ? <> · then {durationText(soak)} of observation</> : null}
          </Text>
        </div>
        <Row gap={6}>{p.rollout_state && p.state === "running" ? <RolloutBadge state={p.rollout_state} /> : null}<MemberBadge state={p.state} /></Row>
      </div>
      {p.counts && p.counts.total > 0 ? (
        <>
          <div className={classes.bar}><CountsBar counts={p.counts} /></div>
          <div className={classes.foot}>
            <span><b>{percentOver(p.counts)} %</b> of {plural(p.counts.total, "target")} done</span>
            <span><b>{p.counts.succeeded.toLocaleString()}</b> upgraded</span>
            <span data-bad={badOf(p.counts) > 0 || undefined}><b>{badOf(p.counts).toLocaleString()}</b> failed</span>
          </div>
        </>
      ) : null}
      {note ? <Text size="xs" c="dimmed" mt={6}>{sentence(note)}</Text> : null}
    </li>
  );
}

function About({ group: g }: { group: Group }) {
  const rows: [string, React.ReactNode][] = [
    ["Group id", <Row key="id" gap={4} wrap="nowrap"><span className="mono">{g.id}</span><CopyIcon text={g.id} label="Copy the group id" /></Row>],
    ["When a member fails", policyText[g.plan.failure_policy]],
    ["Later members", g.plan.accept_drift ? "start with the fleet as it is then" : "pause the group if the fleet is not as previewed"],
    ["Rolled back", g.rolling_back ? <span key="back">{g.rolling_back.by} <Ago at={g.rolling_back.at} />{g.rolling_back.why ? `: “${g.rolling_back.why}”` : ""}</span> : null],
    ["Drafted", <span key="d">{g.created_by} <Ago at={g.created_at} /></span>],
  ];
  return <Panel title="Plan"><Facts rows={rows.filter(([, v]) => v !== null)} /></Panel>;
}
