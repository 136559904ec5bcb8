/** The batches of a rollout with their results. A click on a name shows the batch's hosts in the table. */
import { memo, useEffect, useRef } from "react";
import type { Batch, Rollout } from "~/api/types";
import { batchStep } from "~/util/board/batch";
import { batchNameOf, canaryShares, percentText } from "~/util/board/board";
import { badOf, inFlightOf, refusedOf } from "~/util/rollout/rolloutCounts";
import table from "../base/DataTable.module.css";
import { ProgressBar } from "../base/ProgressBar";
import { When } from "../base/Time";
import classes from "./Board.module.css";

interface Props {
  rollout: Rollout;
  batch?: number;
  onBatch: (batch: number | undefined) => void;
}

export function BatchTable({ rollout: r, batch, onBatch }: Props) {
  const batches = r.batches ?? [];
  const body = useRef<HTMLTableSectionElement>(null);
  useEffect(() => {
    // Of a thousand batches the one under way is in sight at first; later only the reader scrolls.
    const row = body.current?.querySelector<HTMLElement>("[data-now]");
    const box = row?.closest("div");
    if (row && box) box.scrollTop = row.offsetTop - box.clientHeight / 2;
  }, []);
  return (
    <>
      <Shares batches={batches} />
      <div className={classes.batches} data-density="compact" tabIndex={0} role="region" aria-label="All batches">
        <table className={table.table} aria-label="Batches">
          <thead>
            <tr>
              <th>Batch</th>
              <th data-wide>Hosts</th>
              <th>Committed</th>
              <th data-align="end">Failed</th>
              <th>State</th>
            </tr>
          </thead>
          <tbody ref={body}>
            {batches.map((b) => {
              const step = batchStep(b, r);
              return (
                <Row
                  key={b.index}
                  batch={b}
                  ring={r.plan.strategy.kind === "rings"}
                  picked={batch === b.index}
                  word={step.word}
                  at={step.at}
                  onBatch={onBatch}
                />
              );
            })}
          </tbody>
        </table>
      </div>
    </>
  );
}

interface RowProps {
  batch: Batch;
  ring: boolean;
  picked: boolean;
  word: string;
  at?: string;
  onBatch: (batch: number | undefined) => void;
}

/** There may be a thousand; only those that have changed are drawn again. */
const Row = memo(function Row({ batch: b, ring, picked, word, at, onBatch }: RowProps) {
  const bad = badOf(b.counts);
  const refused = refusedOf(b.counts);
  return (
    <tr data-picked={picked || undefined} data-now={b.started_at && !b.ended_at ? true : undefined}>
      <td data-nowrap>
        <button type="button" className={classes.textButton} aria-pressed={picked} onClick={() => onBatch(picked ? undefined : b.index)}>
          {batchNameOf(b)}
        </button>
        {ring ? <span className={classes.faint}> ring {b.ring}</span> : null}
        {b.kind === "late" ? <span className={classes.faint}> joined late</span> : null}
      </td>
      <td data-wide className={classes.batchBar}>
        <ProgressBar counts={b.counts} />
      </td>
      <td data-nowrap>
        {b.counts.succeeded.toLocaleString()} <span className={classes.faint}>of {b.counts.total.toLocaleString()}</span>
      </td>
      <td data-align="end" data-nowrap className={bad + refused > 0 ? classes.bad : undefined}>
        {bad.toLocaleString()}
        {refused > 0 ? <> + {refused.toLocaleString()} refused</> : null}
      </td>
      <td data-nowrap>
        {word}
        {at && inFlightOf(b.counts) === 0 ? (
          <span className={classes.faint}>
            {" "}
            <When at={at} />
          </span>
        ) : null}
      </td>
    </tr>
  );
});

/** How the canaries have done against the rest. */
function Shares({ batches }: { batches: readonly Batch[] }) {
  const shares = canaryShares(batches);
  if (!shares) return null;
  return (
    <dl className={classes.shares}>
      {shares.map((s) => (
        <div key={s.label} className={classes.share}>
          <dt>{s.label}</dt>
          <dd>
            {s.ended === 0 ? (
              <span className={classes.faint}>No host has ended yet</span>
            ) : (
              <>
                <b data-bad={s.bad > 0 || undefined}>{percentText(s.badPercent)}</b> failed{" "}
                <span className={classes.faint}>
                  ({s.bad.toLocaleString()} of {s.ended.toLocaleString()} ended)
                </span>
              </>
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}
