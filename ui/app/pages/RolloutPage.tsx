import { Group, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconArrowLeft, IconPlayerPause } from "@tabler/icons-react";
import { getRouteApi } from "@tanstack/react-router";
import { useCallback } from "react";
import { ApiError } from "~/api/client";
import { rolloutQuery, type TargetsPage } from "~/api/queries";
import type { Rollout } from "~/api/types";
import { Empty, Facts, Loading, LoadError, PageHead, Panel } from "~/components/Blocks";
import { Callout } from "~/components/Callout";
import { CopyIcon } from "~/components/CopyBlock";
import { Ago } from "~/components/Now";
import { Batches } from "~/components/rollout/Batches";
import { Controls } from "~/components/rollout/Controls";
import { CountsBar, Legend } from "~/components/rollout/CountsBar";
import { Draft } from "~/components/rollout/Draft";
import { Gauges } from "~/components/rollout/Gauges";
import { Phases } from "~/components/rollout/Phases";
import { RolloutBadge } from "~/components/rollout/RolloutBadge";
import { Targets } from "~/components/rollout/Targets";
import { Trail } from "~/components/rollout/Trail";
import { Waits } from "~/components/rollout/Waits";
import { TextLink } from "~/components/TextLink";
import { planText } from "~/util/planYaml";
import { shortHash } from "~/util/preview";
import { isGate } from "~/util/rollout";
import { percentOver } from "~/util/rolloutCounts";
import { goalOf, lockstepText, showsRecovery, stopLine, stopTitle, strategyText } from "~/util/rolloutText";
import { plural, sentence, sentenceAbout } from "~/util/words";
import classes from "./RolloutsPage.module.css";
import board from "~/components/rollout/Rollout.module.css";

const route = getRouteApi("/shell/rollouts/$rolloutId");

export function RolloutPage() {
  const { rolloutId } = route.useParams();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const query = useQuery(rolloutQuery(rolloutId));
  const r = query.data;
  const onPage = useCallback(
    (change: Partial<TargetsPage>) => void navigate({ search: (old) => ({ ...old, ...change }), replace: true, resetScroll: false }),
    [navigate],
  );
  if (!r) {
    return (
      <>
        <Back />
        <PageHead title="Rollout" />
        {query.error instanceof ApiError && query.error.statusCode === 404 ? (
          <Panel><Empty title="There is no such rollout">It may have been a draft that was deleted. Its id is <span className="mono">{rolloutId}</span>.</Empty></Panel>
        ) : query.isError ? <LoadError what="The rollout" error={query.error} onRetry={() => void query.refetch()} /> : <Panel><Loading /></Panel>}
      </>
    );
  }
  return (
    <>
      <Back />
      <PageHead title={r.plan.name} hint={<Hint rollout={r} />}>{null}</PageHead>
      {query.isError ? <LoadError what="The newest state of the rollout" error={query.error} onRetry={() => void query.refetch()} /> : null}
      {r.plan.description ? <Text size="sm" mb="sm">{sentence(r.plan.description)}</Text> : null}
      {r.state === "draft" ? (
        <div className={board.sides}>
          <div><Draft rollout={r} /></div>
          <Stack gap="md"><About rollout={r} /><Recovery rollout={r} /><Trail rolloutId={r.id} /></Stack>
        </div>
      ) : (
        <Stack gap="md">
          <Group gap={6} role="group" aria-label="Commands"><Controls rollout={r} /></Group>
          <Stopped rollout={r} />
          <Waits rollout={r} />
          <Panel title="Progress" aside={<span className={board.note}>{percentOver(r.counts)} % of {plural(r.counts.total, "target")} done</span>}>
            <Stack gap="sm">
              <div><CountsBar counts={r.counts} large /><Legend counts={r.counts} /></div>
              {r.lockstep ? <Text size="sm" aria-label="Lockstep">{lockstepText(r)}</Text> : null}
              <Phases rollout={r} />
            </Stack>
          </Panel>
          <div className={board.wideLeft}><Batches rollout={r} /><Gauges rollout={r} /></div>
          <Recovery rollout={r} />
          <Targets rollout={r} page={{ state: search.state, batch: search.batch, page: search.page ?? 1 }} onPage={onPage} />
          <div className={board.sides}><Trail rolloutId={r.id} /><About rollout={r} /></div>
        </Stack>
      )}
    </>
  );
}

function Back() {
  return <TextLink to="/rollouts" size="sm" className={classes.back}><IconArrowLeft size={14} aria-hidden /> Rollouts</TextLink>;
}

function Hint({ rollout: r }: { rollout: Rollout }) {
  return (
    <Group gap="xs" mt={4}>
      <RolloutBadge state={r.state} />
      <span>{[goalOf(r), strategyText(r.plan)].filter(Boolean).join(" · ")}</span>
      {r.plan.pace?.emergency ? <span className={board.tag} data-kind="canary">emergency</span> : null}
      {r.started_at ? <span>· started by {r.started_by} <Ago at={r.started_at} /></span> : <span>· drafted by {r.created_by} <Ago at={r.created_at} /></span>}
      {r.ended_at ? <span>· ended <Ago at={r.ended_at} /></span> : null}
    </Group>
  );
}

function Stopped({ rollout: r }: { rollout: Rollout }) {
  if (r.state !== "paused" || !r.stop) return null;
  const gate = isGate(r.stop.kind);
  return (
    <Callout kind={gate ? "error" : "warning"} icon={gate ? undefined : <IconPlayerPause size={18} aria-hidden />} title={stopTitle[r.stop.kind]}>
      <div>{sentenceAbout(r.stop.text, r.stop.by)}</div>
      <div>{stopLine(r)}</div>
      {gate ? <div>Check the failed targets before you resume: a reason is required.</div> : null}
    </Callout>
  );
}

/** If the old version may be unable to read the state, the recovery plan is shown before it is needed. */
function Recovery({ rollout: r }: { rollout: Rollout }) {
  if (!showsRecovery(r)) return null;
  const plan = r.plan.migration?.recovery_plan;
  return (
    <Panel title="Recovery plan">
      <Stack gap="xs">
        <Text size="sm" c="dimmed">This version changes state so that the old one may not be able to read it: a rollback restores the program, not the state.</Text>
        {plan ? <pre className={board.pre}>{plan}</pre> : <Text size="sm">The plan has none.</Text>}
      </Stack>
    </Panel>
  );
}

function About({ rollout: r }: { rollout: Rollout }) {
  const said = (d: Rollout["approved"]) => (d ? <span key={d.at}>{d.by} <Ago at={d.at} />{d.why ? `: “${d.why}”` : ""}</span> : null);
  const link = (id: string | undefined) => (id ? <TextLink key={id} to="/rollouts/$rolloutId" params={{ rolloutId: id }} inherit className="mono">{id}</TextLink> : null);
  const rows: [string, React.ReactNode][] = [
    ["Rollout id", <Group key="id" gap={4} wrap="nowrap"><span className="mono">{r.id}</span><CopyIcon text={r.id} label="Copy the rollout id" /></Group>],
    ["Component", r.plan.component ?? null],
    ["Group", r.group ? <TextLink key="group" to="/groups/$groupId" params={{ groupId: r.group }} inherit className="mono">{r.group}</TextLink> : null],
    ["Rolls back", link(r.rollback_of)],
    ["Rolled back by", link(r.rolled_back_by)],
    ["Started as previewed", r.pin ? <span key="p"><span className="mono">{shortHash(r.pin.hash)}…</span>, {plural(r.pin.targets, "target")}</span> : null],
    ["Approved by", said(r.approved)],
    ["Forced by", said(r.forced)],
    ["Locked policies", r.policies?.length ? r.policies.join(", ") : null],
    ["Drafted", <span key="d">{r.created_by} <Ago at={r.created_at} /></span>],
  ];
  return (
    <Panel title="Plan">
      <Stack gap="sm">
        <Facts rows={rows.filter(([, v]) => v !== null)} />
        <details open={r.state === "draft"}>
          <summary>The whole plan</summary>
          <pre className={board.pre} tabIndex={0} aria-label="Plan in YAML">{planText(r.plan)}</pre>
        </details>
      </Stack>
    </Panel>
  );
}
