/** The hosts of a rollout, page by page: the server filters, so their number does not matter. */
import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { TARGETS_PER_PAGE, targetsPageQuery } from "~/api/board";
import type { Rollout, RolloutGrid, Target } from "~/api/types";
import { ownReason, targetSince } from "~/util/board/board";
import { targetStatesOf } from "~/util/grid/gridText";
import type { BoardSearch } from "~/util/rollout/rolloutSearch";
import { closed } from "~/util/words";
import { type Column, DataTable } from "../base/DataTable";
import { Empty, LoadError, Loading, Section } from "../base/Page";
import { Pager } from "../base/Pager";
import { TextLink } from "../base/TextLink";
import { When } from "../base/Time";
import classes from "./Board.module.css";
import { TargetBadge } from "./TargetBadge";
import { TargetDialog, type TargetOrder } from "./TargetDialog";
import { TargetFilters } from "./TargetFilters";
import { TargetMenu } from "./TargetMenu";

interface Props {
  rollout: Rollout;
  grid: RolloutGrid | undefined;
  search: BoardSearch;
  onShow: (change: Partial<BoardSearch>) => void;
}

export function TargetTable({ rollout: r, grid, search, onShow }: Props) {
  const [asked, setAsked] = useState<{ target: Target; order: TargetOrder } | null>(null);
  const page = search.page ?? 1;
  const list = useQuery(
    targetsPageQuery(r.id, { states: search.state && targetStatesOf(search.state), batch: search.batch, code: search.code, agent: search.host, page }),
  );
  const rows = list.data?.items ?? [];
  const filtered = search.state || search.batch !== undefined || search.code || search.host !== undefined;
  const columns: Column<Target>[] = [
    { id: "host", header: "Host", width: "var(--host-column)", cell: (t) => <Host target={t} rollout={r} /> },
    { id: "batch", header: "Batch", align: "end", width: "60px", wide: true, cell: (t) => (t.batch + 1).toLocaleString() },
    { id: "state", header: "State", width: "164px", cell: (t) => <TargetBadge target={t} /> },
    {
      id: "version",
      header: "Version",
      width: "136px",
      wide: true,
      cell: (t) => (
        <span className="mono">
          {t.from || "none"} → {t.to}
        </span>
      ),
    },
    { id: "since", header: "Since", width: "116px", wide: true, cell: (t) => <When at={targetSince(t)} /> },
    { id: "reason", header: "Reason", wide: true, cell: (t) => <Reason target={t} rollout={r} /> },
    {
      id: "actions",
      header: "Actions",
      quiet: true,
      align: "end",
      width: "44px",
      cell: (t) => <TargetMenu target={t} onOrder={(target, order) => setAsked({ target, order })} />,
    },
  ];
  return (
    <Section title="Hosts" plain flush aside={<TargetFilters rollout={r} grid={grid} search={search} onShow={onShow} />}>
      {list.isError ? <LoadError what="The hosts of this rollout" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? <Loading rows={6} /> : null}
      {list.data && rows.length === 0 ? (
        <Empty title={filtered ? "No host matches these filters" : "This rollout has no hosts"}>
          {filtered ? (
            <Button variant="default" onClick={() => onShow({ state: undefined, batch: undefined, code: undefined, host: undefined })}>
              Clear filters
            </Button>
          ) : null}
        </Empty>
      ) : null}
      {rows.length > 0 ? (
        <>
          <div className={classes.targets}>
            <DataTable label="Hosts of this rollout" columns={columns} rows={rows} rowId={(t) => t.agent_id} busy={list.isPlaceholderData} fixed={860} />
          </div>
          <Pager page={page} perPage={TARGETS_PER_PAGE} total={list.data?.total ?? 0} of="hosts" onPage={(p) => onShow({ page: p })} />
        </>
      ) : null}
      {asked ? <TargetDialog rollout={r} target={asked.target} order={asked.order} onClose={() => setAsked(null)} /> : null}
    </Section>
  );
}

/** The host; on a phone with its reason, for which there is no column. */
function Host({ target: t, rollout: r }: { target: Target; rollout: Rollout }) {
  return (
    <>
      <TextLink to="/agents/$agentId" params={{ agentId: t.agent_id }} inherit title={t.hostname}>
        {t.hostname || t.agent_id}
      </TextLink>
      {t.error ? (
        <div className={classes.onPhone}>
          <Reason target={t} rollout={r} />
        </div>
      ) : null}
    </>
  );
}

function Reason({ target: t, rollout: r }: { target: Target; rollout: Rollout }) {
  const own = ownReason(t, r);
  const again = t.attempts > 1 && !t.ended_at ? `Attempt ${t.attempts}` : "";
  const head = [own, again].filter(Boolean).join(", ");
  if (!head && !t.error) return <span className={classes.faint}>–</span>;
  return (
    <span title={[head, t.error].filter(Boolean).join(": ")} className={t.state === "pending" ? classes.faint : undefined}>
      {head}
      {t.error ? (
        <span className={head ? classes.faint : undefined}>
          {head ? ": " : ""}
          {closed(t.error)}
        </span>
      ) : null}
      {t.expires_at && t.state === "held" ? (
        <span className={classes.faint}>
          {" "}
          Its order expires <When at={t.expires_at} />.
        </span>
      ) : null}
    </span>
  );
}
