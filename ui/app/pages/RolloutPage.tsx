/** The rollout board: is it going well, what is next, what would stop it. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useCallback, useMemo } from "react";
import { gridQuery } from "~/api/board";
import { ApiError } from "~/api/client";
import { rolloutQuery } from "~/api/queries";
import type { Rollout } from "~/api/types";
import { RolloutBadge } from "~/components/base/Badge";
import { useClock } from "~/components/base/Now";
import { Empty, Line, LoadError, Loading, PageHead, Section } from "~/components/base/Page";
import { Ago } from "~/components/base/Time";
import { BatchTable } from "~/components/board/BatchTable";
import classes from "~/components/board/Board.module.css";
import { BoardCommands } from "~/components/board/BoardCommands";
import { BoardGrid } from "~/components/board/BoardGrid";
import { Causes } from "~/components/board/Causes";
import { DraftPreview, StartButton } from "~/components/board/Draft";
import { PlanFacts } from "~/components/board/PlanFacts";
import { RolloutTrail } from "~/components/board/RolloutTrail";
import { Standing } from "~/components/board/Standing";
import { StatusStrip } from "~/components/board/StatusStrip";
import { TargetTable } from "~/components/board/TargetTable";
import { TryAgain } from "~/components/board/TryAgain";
import { VersionHealth } from "~/components/board/VersionHealth";
import { batchLine, doneText, rateText } from "~/util/board/board";
import { failedIn } from "~/util/board/boardGrid";
import type { BoardSearch } from "~/util/rollout/rolloutSearch";
import { goalOf } from "~/util/rollout/rolloutText";
import { exactWithZone } from "~/util/time";
import { plural } from "~/util/words";

const route = getRouteApi("/shell/rollouts/$rolloutId");
const crumbs = [{ label: "Rollouts", to: "/rollouts" }];

export function RolloutPage() {
  const { rolloutId } = route.useParams();
  const query = useQuery(rolloutQuery(rolloutId));
  const r = query.data;
  if (!r) {
    return (
      <>
        <PageHead title="Rollout" crumbs={crumbs} />
        {query.error instanceof ApiError && query.error.statusCode === 404 ? (
          <Empty title="There is no such rollout">
            It may have been a draft that was deleted. Its id is <span className="mono">{rolloutId}</span>.
          </Empty>
        ) : query.isError ? (
          <LoadError what="The rollout" error={query.error} onRetry={() => void query.refetch()} />
        ) : (
          <Loading rows={8} />
        )}
      </>
    );
  }
  return (
    <>
      {r.state === "draft" ? <DraftOf rollout={r} /> : <Board rollout={r} />}
      {query.isError ? <LoadError what="The newest state of the rollout" error={query.error} onRetry={() => void query.refetch()} /> : null}
    </>
  );
}

function DraftOf({ rollout: r }: { rollout: Rollout }) {
  return (
    <>
      <PageHead
        title={<Title rollout={r} />}
        name={r.plan.name}
        crumbs={crumbs}
        badge={<RolloutBadge rollout={r} strong />}
        docs="rollouts"
        sub={
          <Line>
            {[
              <>
                Drafted by {r.created_by} <Ago at={r.created_at} />
              </>,
            ]}
          </Line>
        }
      >
        <BoardCommands rollout={r} failed={[]} />
        <StartButton rollout={r} />
      </PageHead>
      <div className={classes.draft}>
        <DraftPreview rollout={r} />
        <div className={classes.stack}>
          <PlanFacts rollout={r} />
          <RolloutTrail rolloutId={r.id} />
        </div>
      </div>
    </>
  );
}

function Board({ rollout: r }: { rollout: Rollout }) {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const grid = useQuery(gridQuery(r.id));
  const failed = useMemo(() => failedIn(grid.data), [grid.data]);
  const onShow = useCallback(
    // Other filters have other pages.
    (change: Partial<BoardSearch>) => void navigate({ search: (old) => ({ ...old, page: undefined, ...change }), replace: true, resetScroll: false }),
    [navigate],
  );
  const onBatch = useCallback((batch: number | undefined) => onShow({ batch, host: undefined }), [onShow]);
  const causes = r.causes ?? [];
  return (
    <>
      <PageHead
        title={<Title rollout={r} />}
        name={r.plan.name}
        crumbs={crumbs}
        badge={<RolloutBadge rollout={r} strong />}
        docs="rollouts"
        sub={<Progress rollout={r} />}
      >
        <TryAgain rollout={r} />
        <BoardCommands rollout={r} failed={failed} />
      </PageHead>
      <div className={classes.stack}>
        <Standing rollout={r} />
        <StatusStrip rollout={r} />
        {grid.isError ? <LoadError what="The grid of hosts" error={grid.error} onRetry={() => void grid.refetch()} /> : null}
        {grid.isPending ? <Loading rows={4} /> : null}
        {grid.data ? <BoardGrid rollout={r} grid={grid.data} search={search} onShow={onShow} /> : null}
        <div className={classes.sides}>
          <div className={classes.column}>
            <Section
              title={
                causes.length > 0
                  ? `Failures by cause: ${plural(
                      causes.reduce((n, c) => n + c.count, 0),
                      "host",
                    )}`
                  : "Failures by cause"
              }
              plain
            >
              {causes.length > 0 ? <Causes causes={causes} code={search.code} onShow={onShow} /> : <p className={classes.none}>No host has failed.</p>}
            </Section>
            <RolloutTrail rolloutId={r.id} />
          </div>
          <div className={classes.column}>
            {r.plan.component || !r.plan.version ? null : <VersionHealth version={r.plan.version} />}
            <Section title="Batches" plain>
              <BatchTable rollout={r} batch={search.batch} onBatch={onBatch} />
            </Section>
          </div>
        </div>
        <TargetTable rollout={r} grid={grid.data} search={search} onShow={onShow} />
        <PlanFacts rollout={r} columns={2} />
      </div>
    </>
  );
}

/** The name, with the version unless the name has it. */
function Title({ rollout: r }: { rollout: Rollout }) {
  const goal = goalOf(r);
  return (
    <>
      {r.plan.name}
      {goal ? <span className={classes.goal}> {goal.replace(/^to /, "→ ")}</span> : null}
    </>
  );
}

/** The line under the name: where it is, how fast it goes, when it will be done. */
function Progress({ rollout: r }: { rollout: Rollout }) {
  const now = useClock();
  const done = doneText(r.pace, now);
  return (
    <Line>
      {[
        batchLine(r),
        r.state !== "running" ? null : rateText(r.pace?.per_minute),
        done && r.pace?.done_about ? (
          <time key="done" dateTime={r.pace.done_about} title={exactWithZone(r.pace.done_about)}>
            {done}
          </time>
        ) : null,
        <span key="started">
          {r.ended_at ? "Started" : "started"} by {r.started_by} <Ago at={r.started_at} />
        </span>,
        r.ended_at ? (
          <span key="ended">
            ended <Ago at={r.ended_at} />
          </span>
        ) : null,
      ]}
    </Line>
  );
}
