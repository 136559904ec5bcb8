import { Button, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconPlus, IconRoute } from "@tabler/icons-react";
import { getRouteApi, Link } from "@tanstack/react-router";
import { rolloutsQuery } from "~/api/queries";
import type { Rollout } from "~/api/types";
import { Empty, Loading, LoadError, PageHead, Panel } from "~/components/Blocks";
import { Ago } from "~/components/Now";
import { CountsBar } from "~/components/rollout/CountsBar";
import { GuardRails } from "~/components/rollout/GuardRails";
import { RolloutBadge } from "~/components/rollout/RolloutBadge";
import { Countdown } from "~/components/rollout/Waits";
import { badOf, percentOver } from "~/util/rolloutCounts";
import { countStates, ROLLOUT_STATES } from "~/util/rolloutSearch";
import { goalOf, stateLabel, stopTitle, strategyText, waitsOf, waitTitle } from "~/util/rolloutText";
import { plural } from "~/util/words";
import classes from "./RolloutsPage.module.css";

const route = getRouteApi("/shell/rollouts");

export function RolloutsPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const list = useQuery(rolloutsQuery);
  const all = list.data?.items ?? [];
  const shown = search.state ? all.filter((r) => search.state!.includes(r.state)) : all;
  const counts = countStates(all);
  const toggle = (state: Rollout["state"]) => {
    const chosen = search.state ?? [];
    const next = chosen.includes(state) ? chosen.filter((s) => s !== state) : [...chosen, state];
    void navigate({ search: next.length > 0 ? { state: next } : {} });
  };
  return (
    <>
      <PageHead
        title="Rollouts"
        hint={list.data && list.data.total > all.length ? `The newest ${all.length} of ${list.data.total.toLocaleString()}` : "Upgrades of many agents in batches, which pause by themselves"}
      >
        <Button leftSection={<IconPlus size={16} aria-hidden />} renderRoot={(props) => <Link {...props} to="/rollouts/new" />}>New rollout…</Button>
      </PageHead>
      {list.isError ? <LoadError what="The rollouts" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? <Panel><Loading /></Panel> : null}
      {counts.size > 1 || search.state ? (
        <div className={classes.filters} role="group" aria-label="Filter by state">
          {ROLLOUT_STATES.filter((s) => counts.has(s) || search.state?.includes(s)).map((s) => (
            <button key={s} type="button" className={classes.filter} aria-pressed={search.state?.includes(s) ?? false} onClick={() => toggle(s)}>
              {stateLabel[s]} <b>{counts.get(s) ?? 0}</b>
            </button>
          ))}
          {search.state ? <Button size="compact-xs" variant="subtle" onClick={() => void navigate({ search: {} })}>Show all</Button> : null}
        </div>
      ) : null}
      {list.data && all.length === 0 ? (
        <Panel>
          <Empty icon={<IconRoute size={36} stroke={1.5} aria-hidden />} title="No rollout yet">
            <p>A rollout upgrades many agents in batches: canaries first, with an exact preview, and it pauses by itself when too many fail.</p>
            <Button renderRoot={(props) => <Link {...props} to="/rollouts/new" />}>Create the first one</Button>
          </Empty>
        </Panel>
      ) : null}
      {all.length > 0 && shown.length === 0 ? <Panel><Empty title="No rollout is in this state" /></Panel> : null}
      {shown.length > 0 ? <ul className={classes.list} aria-label="Rollouts">{shown.map((r) => <Card key={r.id} rollout={r} />)}</ul> : null}
      <GuardRails />
    </>
  );
}

function Card({ rollout: r }: { rollout: Rollout }) {
  const bad = badOf(r.counts);
  const draft = r.state === "draft";
  return (
    <li className={classes.card} aria-label={r.plan.name}>
      <div className={classes.head}>
        <div className={classes.title}>
          <Link className={classes.name} to="/rollouts/$rolloutId" params={{ rolloutId: r.id }}>{r.plan.name}</Link> <span className={classes.goal}>{goalOf(r)}</span>
          <Text size="xs" c="dimmed">
            {strategyText(r.plan)} · {r.started_at ? <>started by {r.started_by} <Ago at={r.started_at} /></> : <>drafted by {r.created_by} <Ago at={r.created_at} /></>}
            {r.ended_at ? <> · ended <Ago at={r.ended_at} /></> : null}
          </Text>
        </div>
        <RolloutBadge state={r.state} />
      </div>
      {draft ? <Text size="sm" c="dimmed" mt={8}>Not started: open it to preview and start it.</Text> : (
        <>
          <div className={classes.bar}><CountsBar counts={r.counts} /></div>
          <div className={classes.foot}>
            <span><b>{percentOver(r.counts)} %</b> of {plural(r.counts.total, "target")} done</span>
            <span><b>{r.counts.succeeded.toLocaleString()}</b> upgraded</span>
            <span data-bad={bad > 0 || undefined}><b>{bad.toLocaleString()}</b> failed</span>
            <Waiting rollout={r} />
          </div>
        </>
      )}
    </li>
  );
}

function Waiting({ rollout: r }: { rollout: Rollout }) {
  if (r.state === "paused" && r.stop) return <span className={classes.wait}>{stopTitle[r.stop.kind]}</span>;
  const first = waitsOf(r)[0];
  if (!first) return null;
  return <span className={classes.wait}>Waiting: {waitTitle(first.code).toLowerCase()}{first.until ? <> · <Countdown until={first.until} /></> : null}</span>;
}
