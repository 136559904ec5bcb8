import { Button, Pagination, Select, Table } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { targetsQuery, TARGETS_PER_PAGE, type TargetsPage } from "~/api/queries";
import type { Rollout, Target } from "~/api/types";
import { whyNotRetry, whyNotSkip } from "~/util/rollout";
import { isTargetState, TARGET_STATES } from "~/util/rolloutCounts";
import { codeBeside, codeText, targetLabel, whyCode } from "~/util/rolloutText";
import { plural, sentence } from "~/util/words";
import { Empty, Loading, LoadError, Panel } from "../Blocks";
import { Ago } from "../Now";
import { ReasonButton } from "../ReasonButton";
import { RolloutPhase } from "./Phases";
import { TargetBadge } from "./RolloutBadge";
import { TargetDialog, type TargetCommand } from "./TargetDialog";
import classes from "./Rollout.module.css";

interface Props {
  rollout: Rollout;
  page: TargetsPage;
  onPage: (change: Partial<TargetsPage>) => void;
}

/** The agents of a rollout, page by page: the server sorts and filters, so their number does not matter. */
export function Targets({ rollout: r, page, onPage }: Props) {
  const list = useQuery(targetsQuery(r.id, page));
  const [asked, setAsked] = useState<{ target: Target; what: TargetCommand } | null>(null);
  const total = list.data?.total ?? 0;
  const pages = Math.max(1, Math.ceil(total / TARGETS_PER_PAGE));
  return (
    <div id="targets">
      <Panel title="Targets" flush aside={<Filters rollout={r} page={page} onPage={onPage} />}>
        {list.isError ? <LoadError what="The targets" error={list.error} onRetry={() => void list.refetch()} /> : null}
        {list.isPending ? <Loading rows={4} /> : null}
        {list.data && list.data.items.length === 0 ? (
          <Empty title={page.state || page.batch !== undefined ? "No target matches" : "No targets"}>
            {page.state || page.batch !== undefined ? <Button size="xs" variant="default" onClick={() => onPage({ state: undefined, batch: undefined, page: 1 })}>Clear filters</Button> : null}
          </Empty>
        ) : null}
        {list.data && list.data.items.length > 0 ? (
          <div className={classes.scroll} style={{ maxHeight: 640 }} tabIndex={0} role="region" aria-label="Targets">
            <Table fz="sm" verticalSpacing={7} horizontalSpacing="md" className={classes.table}>
              <Table.Thead>
                <Table.Tr>
                  {["Host", "State", r.plan.component ? `Version of ${r.plan.component}` : "Version", "Batch", "Why"].map((h) => <Table.Th key={h} scope="col">{h}</Table.Th>)}
                  <Table.Th scope="col"><span className="sr-only">Actions</span></Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {list.data.items.map((t) => <Row key={t.agent_id} target={t} rollout={r} onAsk={(what) => setAsked({ target: t, what })} />)}
              </Table.Tbody>
            </Table>
          </div>
        ) : null}
        {total > 0 ? (
          <div className={classes.foot}>
            <span role="status">{plural(total, "target")}{page.state || page.batch !== undefined ? " match" : ""}</span>
            {pages > 1 ? <Pagination size="sm" total={pages} value={page.page} onChange={(p) => onPage({ page: p })} getControlProps={(c) => ({ "aria-label": `${c} page` })} /> : null}
          </div>
        ) : null}
      </Panel>
      {asked ? <TargetDialog rollout={r} target={asked.target} what={asked.what} onClose={() => setAsked(null)} /> : null}
    </div>
  );
}

function Filters({ rollout: r, page, onPage }: Props) {
  return (
    <div className={classes.filters} role="search" aria-label="Filter targets">
      <Select
        size="xs" w={170} clearable placeholder="Any state" aria-label="State"
        data={TARGET_STATES.map((s) => ({ value: s, label: `${targetLabel[s]} (${r.counts[s].toLocaleString()})` }))}
        value={page.state ?? null}
        onChange={(s) => onPage({ state: isTargetState(s) ? s : undefined, page: 1 })}
      />
      <Select
        size="xs" w={130} clearable searchable placeholder="Any batch" aria-label="Batch"
        data={(r.batches ?? []).map((b) => ({ value: String(b.index), label: `Batch ${b.index + 1}` }))}
        value={page.batch === undefined ? null : String(page.batch)}
        onChange={(b) => onPage({ batch: b === null ? undefined : Number(b), page: 1 })}
      />
    </div>
  );
}

function Row({ target: t, rollout: r, onAsk }: { target: Target; rollout: Rollout; onAsk: (what: TargetCommand) => void }) {
  const since = t.ended_at ?? t.reached_at ?? t.offered_at;
  const host = t.hostname || t.agent_id;
  const code = whyCode(t, r);
  return (
    <Table.Tr>
      <Table.Th scope="row" fw={600} className={classes.cell}>
        <Link to="/agents/$agentId" params={{ agentId: t.agent_id }}>{host}</Link>
        {t.site ? <div className={classes.sub}>{t.site}</div> : null}
      </Table.Th>
      <Table.Td><TargetBadge state={t.state} />{since ? <div className={classes.sub}><Ago at={since} /></div> : null}</Table.Td>
      <Table.Td className={classes.nowrap}><span className="mono">{t.from || "none"}</span> → <span className="mono">{t.to}</span>{t.rollback ? <div className={classes.sub}>rolls back to its previous version</div> : null}</Table.Td>
      <Table.Td>{t.batch + 1}{t.attempts > 1 ? <div className={classes.sub}>attempt {t.attempts}</div> : null}</Table.Td>
      <Table.Td className={classes.reason}>
        {t.phase && !t.ended_at ? <RolloutPhase phase={t.phase} /> : null}
        {code ? <div title={code}>{codeText(code)} <span className={`mono ${classes.sub}`}>{codeBeside(code)}</span></div> : null}
        {t.error ? <div className={classes.error}>{sentence(t.error)}</div> : null}
        {t.expires_at && t.state === "held" ? <div className={classes.sub}>Its offer expires <Ago at={t.expires_at} /></div> : null}
      </Table.Td>
      <Table.Td className={classes.end}>
        <ReasonButton size="compact-xs" variant="subtle" color="gray" reason={whyNotRetry(t, r)} aria-label={`Retry ${host}`} onClick={() => onAsk("retry")}>Retry…</ReasonButton>
        <ReasonButton size="compact-xs" variant="subtle" color="gray" reason={whyNotSkip(t, r)} aria-label={`Skip ${host}`} onClick={() => onAsk("skip")}>Skip…</ReasonButton>
      </Table.Td>
    </Table.Tr>
  );
}
