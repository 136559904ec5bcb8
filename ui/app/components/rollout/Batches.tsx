import { Table } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import type { Batch, Rollout } from "~/api/types";
import { badOf, inFlightOf } from "~/util/rolloutCounts";
import { batchStep } from "~/util/batch";
import { Empty, Panel } from "../Blocks";
import { Ago } from "../Now";
import { CountsBar } from "./CountsBar";
import classes from "./Rollout.module.css";

/** The batches of a rollout. A click on one shows its targets. */
export function Batches({ rollout: r }: { rollout: Rollout }) {
  const batches = r.batches ?? [];
  if (batches.length === 0) return <Panel title="Batches"><Empty title="No batches yet">They are created when the rollout starts.</Empty></Panel>;
  return (
    <Panel title="Batches" flush aside={<span className={classes.note}>{batches.filter((b) => b.cleared_at).length} of {batches.length} done</span>}>
      <div className={classes.scroll} tabIndex={0} role="region" aria-label="All batches">
        <Table fz="sm" verticalSpacing={7} horizontalSpacing="sm" className={`${classes.table} ${classes.narrow}`}>
          <Table.Thead>
            <Table.Tr>
              {["Batch", "Progress", "Targets", "In flight", "Failed", "Step"].map((h) => <Table.Th key={h} scope="col">{h}</Table.Th>)}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>{batches.map((b) => <Row key={b.index} batch={b} rollout={r} />)}</Table.Tbody>
        </Table>
      </div>
    </Panel>
  );
}

function Row({ batch: b, rollout: r }: { batch: Batch; rollout: Rollout }) {
  const bad = badOf(b.counts);
  const step = batchStep(b, r);
  return (
    <Table.Tr>
      <Table.Th scope="row" fw={600} className={classes.nowrap}>
        <Link to="/rollouts/$rolloutId" params={{ rolloutId: r.id }} search={{ batch: b.index }} hash="targets" aria-label={`Targets of batch ${b.index + 1}`}>{b.index + 1}</Link>
        {" "}<BatchTag kind={b.kind} ring={r.plan.strategy.kind === "rings" ? b.ring : undefined} />
      </Table.Th>
      <Table.Td className={classes.barCell}><CountsBar counts={b.counts} /></Table.Td>
      <Table.Td>{b.counts.succeeded.toLocaleString()} of {b.counts.total.toLocaleString()}{b.counts.held > 0 ? <div className={classes.sub}>{b.counts.held.toLocaleString()} offline</div> : null}</Table.Td>
      <Table.Td>{inFlightOf(b.counts).toLocaleString()}</Table.Td>
      <Table.Td>{bad > 0 ? <span className={classes.error}>{bad.toLocaleString()}</span> : "0"}{b.counts.withdrawn > 0 ? <div className={classes.sub}>{b.counts.withdrawn.toLocaleString()} withdrawn</div> : null}</Table.Td>
      <Table.Td className={classes.cell}>
        {step.word}
        {step.at ? <div className={classes.sub}><Ago at={step.at} /></div> : null}
      </Table.Td>
    </Table.Tr>
  );
}

export function BatchTag({ kind, ring }: { kind: Batch["kind"]; ring?: number }) {
  return (
    <>
      {kind === "regular" ? null : <span className={classes.tag} data-kind={kind}>{kind === "canary" ? "canary" : "joined late"}</span>}
      {ring === undefined ? null : <> <span className={classes.tag}>ring {ring}</span></>}
    </>
  );
}
