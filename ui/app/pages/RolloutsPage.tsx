/** The rollouts, newest first, with how those under way are getting on. */
import { Button, MultiSelect } from "@mantine/core";
import { IconRocket } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { ROLLOUTS_PER_PAGE, rolloutsPageQuery } from "~/api/board";
import type { Rollout, StrategyKind } from "~/api/types";
import { RolloutBadge } from "~/components/base/Badge";
import { CopyBlock } from "~/components/base/CopyBlock";
import { type Column, DataTable } from "~/components/base/DataTable";
import { useClock } from "~/components/base/Now";
import { Empty, LoadError, Loading, PageHead } from "~/components/base/Page";
import { Pager } from "~/components/base/Pager";
import { ProgressBar } from "~/components/base/ProgressBar";
import { SubNav } from "~/components/base/SubNav";
import { TextLink } from "~/components/base/TextLink";
import { When } from "~/components/base/Time";
import { committedPercent, doneText, rateText } from "~/util/board/board";
import { failedText } from "~/util/rollout/rolloutCounts";
import { isTab, type RolloutsSearch, STATE_TABS } from "~/util/rollout/rolloutSearch";
import { stopReason, waitsOf, waitTitle } from "~/util/rollout/rolloutText";
import { strategies, strategyChoices } from "~/util/rollout/strategies";
import classes from "./RolloutsPage.module.css";

const route = getRouteApi("/shell/rollouts");

const COLUMNS: Column<Rollout>[] = [
  { id: "name", header: "Rollout", width: "auto", cell: (r) => <Name rollout={r} /> },
  {
    id: "version",
    header: "Version",
    width: "84px",
    wide: true,
    cell: (r) => <span className="mono">{r.plan.version ?? r.plan.upgrade_id ?? (r.rollback_of ? "earlier ones" : "–")}</span>,
  },
  { id: "state", header: "State", width: "112px", cell: (r) => <RolloutBadge rollout={r} /> },
  {
    id: "progress",
    header: "Committed",
    width: "var(--committed-column)",
    cell: (r) => (r.state === "draft" ? <span className={classes.faint}>Not started</span> : <Progress rollout={r} />),
  },
  { id: "hosts", header: "Hosts", align: "end", width: "72px", wide: true, cell: (r) => (r.state === "draft" ? "–" : r.counts.total.toLocaleString()) },
  { id: "pace", header: "Pace", width: "160px", wide: true, cell: (r) => <Pace rollout={r} /> },
  { id: "started", header: "Started", width: "144px", wide: true, cell: (r) => <Started rollout={r} /> },
];

export function RolloutsPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const page = search.page ?? 1;
  const list = useQuery(rolloutsPageQuery(search, page));
  const show = (change: RolloutsSearch) => void navigate({ search: (old) => ({ ...old, page: undefined, ...change }) });
  const filtered = search.state !== undefined || search.kind !== undefined;
  const rows = list.data?.items ?? [];
  return (
    <>
      <PageHead title="Rollouts" docs="rollouts" sub="Upgrades of many hosts in batches, which pause by themselves when too many fail.">
        <Button renderRoot={(props) => <Link {...props} to="/rollouts/new" />}>Create rollout</Button>
      </PageHead>
      <SubNav
        label="Rollouts"
        pages={[
          { to: "/rollouts", label: "Rollouts" },
          { to: "/groups", label: "Groups" },
        ]}
      />
      {list.isError ? <LoadError what="The rollouts" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? <Loading rows={6} /> : null}
      {list.data && (rows.length > 0 || filtered) ? (
        <div className={classes.filters}>
          <div className={classes.tabs} role="group" aria-label="State">
            {STATE_TABS.map((t) => (
              <button key={t.label} type="button" className={classes.tab} aria-pressed={isTab(t, search.state)} onClick={() => show({ state: t.state })}>
                {t.label}
              </button>
            ))}
          </div>
          <MultiSelect
            className={classes.kind}
            aria-label="Strategy"
            placeholder={search.kind ? undefined : "All strategies"}
            clearable
            data={strategyChoices}
            value={search.kind ?? []}
            onChange={(kind) => show({ kind: kind.length > 0 ? (kind as StrategyKind[]) : undefined })}
          />
        </div>
      ) : null}
      {list.data && rows.length === 0 ? (
        filtered ? (
          <Empty title="No rollout matches these filters">
            <Button variant="default" onClick={() => show({ state: undefined, kind: undefined })}>
              Show all rollouts
            </Button>
          </Empty>
        ) : (
          <First />
        )
      ) : null}
      {rows.length > 0 ? (
        <>
          <div className={classes.table}>
            <DataTable
              label="Rollouts"
              columns={COLUMNS}
              rows={rows}
              rowId={(r) => r.id}
              density="comfortable"
              fixed={860}
              busy={list.isPlaceholderData}
              onOpen={(r) => void navigate({ to: "/rollouts/$rolloutId", params: { rolloutId: r.id } })}
            />
          </div>
          <Pager page={page} perPage={ROLLOUTS_PER_PAGE} total={list.data?.total ?? 0} of="rollouts" onPage={(p) => show({ page: p > 1 ? p : undefined })} />
        </>
      ) : null}
    </>
  );
}

function First() {
  return (
    <Empty icon={<IconRocket size={36} stroke={1.5} aria-hidden />} title="No rollout yet">
      <p>A rollout upgrades many hosts in batches: canaries first, with an exact preview. Create one here, or on the command line:</p>
      <CopyBlock label="Command that creates a rollout" text="muster rollouts create --version 1.1.0 --all --canary 1 --start" />
    </Empty>
  );
}

function Name({ rollout: r }: { rollout: Rollout }) {
  return (
    <div>
      <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: r.id }} inherit className={classes.name} title={r.plan.name}>
        {r.plan.name}
      </TextLink>
      <div className={classes.sub}>
        {[strategies[r.plan.strategy.kind]?.label ?? r.plan.strategy.kind, r.plan.component ? `component ${r.plan.component}` : ""].filter(Boolean).join(" · ")}
      </div>
    </div>
  );
}

function Started({ rollout: r }: { rollout: Rollout }) {
  return (
    <div>
      {r.started_at ? (
        <When at={r.started_at} />
      ) : (
        <>
          Drafted <When at={r.created_at} />
        </>
      )}
      <div className={classes.sub}>by {r.started_by ?? r.created_by}</div>
    </div>
  );
}

function Progress({ rollout: r }: { rollout: Rollout }) {
  const failed = failedText(r.counts);
  return (
    <div className={classes.progress}>
      <ProgressBar counts={r.counts} />
      <span className={classes.percent}>{committedPercent(r.counts)} %</span>
      {failed ? <span className={classes.bad}>{failed}</span> : null}
    </div>
  );
}

/** How fast a rollout goes and when it will be done, or what it waits for. */
function Pace({ rollout: r }: { rollout: Rollout }) {
  const now = useClock();
  if (r.ended_at || r.state === "draft") return <span className={classes.faint}>–</span>;
  const done = doneText(r.pace, now);
  const first = waitsOf(r)[0];
  if (r.state === "paused" && r.stop) return <span className={classes.sub}>{stopReason(r.stop.kind)}</span>;
  const rate = rateText(r.pace?.per_minute);
  if (!rate && !done && !first) return <span className={classes.faint}>–</span>;
  return (
    <div>
      {rate}
      {done ? <div className={classes.sub}>{done}</div> : first ? <div className={classes.sub}>Waits: {waitTitle(first.code).toLowerCase()}</div> : null}
    </div>
  );
}
