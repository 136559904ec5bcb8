import { Badge, Checkbox, Group } from "@mantine/core";
import { IconArrowDown, IconArrowUp, IconArrowsSort } from "@tabler/icons-react";
import { Link } from "@tanstack/react-router";
import {
  createColumnHelper, createSortedRowModel, rowSelectionFeature, rowSortingFeature, tableFeatures, useTable,
  type Row, type RowSelectionState, type SortingState,
} from "@tanstack/react-table";
import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { memo, useLayoutEffect, useMemo, useRef, useState, type ReactNode } from "react";
import type { Agent } from "~/api/types";
import { hostOf, osOf, platformOf } from "~/util/facts";
import { GROUPS, groupOf } from "~/util/status";
import { SORTS, type SortColumn } from "~/util/search";
import { compareVersions } from "~/util/version";
import { AgentMenu } from "./AgentMenu";
import { Ago } from "./Now";
import { StatusBadge } from "./StatusBadge";
import { VersionCell } from "./VersionCell";
import classes from "./AgentTable.module.css";

/** Above this many rows only visible ones are in the document: a browser takes seconds to lay out thousands. */
export const VIRTUAL_ABOVE = 500;
/** The height of a row without a phase; taller ones are measured. */
const ROW_PX = 49;

const features = tableFeatures({ rowSelectionFeature, rowSortingFeature, sortedRowModel: createSortedRowModel() });
type AgentRow = Row<typeof features, Agent>;
const helper = createColumnHelper<typeof features, Agent>();

interface Props {
  agents: Agent[];
  policyName: (id: string) => string;
  newest?: string;
  sort: { column: SortColumn; desc: boolean };
  onSort: (column: SortColumn, desc: boolean) => void;
  selection: RowSelectionState;
  onSelection: (selection: RowSelectionState) => void;
  onUpgrade: (agent: Agent) => void;
  onRollback: (agent: Agent) => void;
  onUnenroll: (agent: Agent) => void;
}

const titles: Record<SortColumn, string> = {
  status: "Status", host: "Host", version: "Version", policy: "Policy", seen: "Last seen",
};

export function AgentTable(props: Props) {
  const { agents, policyName, sort, selection, onSelection } = props;
  const columns = useMemo(() => {
    const text = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });
    const byHost = (a: Agent, b: Agent) => text.compare(hostOf(a), hostOf(b));
    // The host breaks ties, so that rows keep their places while agents change.
    const by = (compare: (a: Agent, b: Agent) => number) => (a: AgentRow, b: AgentRow) =>
      compare(a.original, b.original) || byHost(a.original, b.original);
    return helper.columns([
      helper.accessor((a) => a.status, { id: "status", sortFn: by((a, b) => GROUPS.indexOf(groupOf(a.status)) - GROUPS.indexOf(groupOf(b.status))) }),
      helper.accessor(hostOf, { id: "host", sortFn: by(byHost) }),
      helper.accessor((a) => a.agent.version, { id: "version", sortFn: by((a, b) => compareVersions(a.agent.version, b.agent.version)) }),
      helper.accessor((a) => policyName(a.policy_id), { id: "policy", sortFn: by((a, b) => text.compare(policyName(a.policy_id), policyName(b.policy_id))) }),
      helper.accessor((a) => a.last_checkin ?? "", { id: "seen", sortFn: by((a, b) => seenAt(a) - seenAt(b)) }),
    ]);
  }, [policyName]);

  const sorting: SortingState = useMemo(() => [{ id: sort.column, desc: sort.desc }], [sort.column, sort.desc]);
  const table = useTable({
    features,
    columns,
    data: agents,
    getRowId: (a) => a.id,
    state: { sorting, rowSelection: selection },
    onRowSelectionChange: (update) => onSelection(typeof update === "function" ? update(selection) : update),
  });
  const rows = table.getRowModel().rows;
  const chosen = agents.filter((a) => selection[a.id]).length;

  return (
    <table className={classes.table} aria-rowcount={rows.length + 1}>
      <caption className="sr-only">Agents, sorted by {titles[sort.column]}, {sort.desc ? "descending" : "ascending"}</caption>
      <thead>
        <tr>
          <th scope="col" className={classes.tick}>
            <Checkbox
              size="xs"
              aria-label={`Select all ${agents.length} agents shown`}
              checked={chosen > 0 && chosen === agents.length}
              indeterminate={chosen > 0 && chosen < agents.length}
              onChange={() => onSelection(chosen === agents.length ? {} : Object.fromEntries(agents.map((a) => [a.id, true])))}
            />
          </th>
          {SORTS_SHOWN.map((column) => (
            <SortHead key={column} column={column} sort={sort} onSort={props.onSort} />
          ))}
          <th scope="col" className={classes.tags}>Tags</th>
          <th scope="col" className={classes.menu}><span className="sr-only">Actions</span></th>
        </tr>
      </thead>
      <Rows rows={rows} render={(row, index) => (
        <AgentRowView
          key={row.id}
          agent={row.original}
          index={index}
          picked={!!selection[row.id]}
          policy={policyName(row.original.policy_id)}
          newest={props.newest}
          onToggle={row.getToggleSelectedHandler()}
          onUpgrade={props.onUpgrade}
          onRollback={props.onRollback}
          onUnenroll={props.onUnenroll}
        />
      )} />
    </table>
  );
}

const SORTS_SHOWN = ["status", "host", "version", "policy", "seen"] as const satisfies readonly (typeof SORTS)[number][];

function seenAt(a: Agent): number {
  return a.last_checkin ? Date.parse(a.last_checkin) : 0;
}

function SortHead({ column, sort, onSort }: { column: SortColumn } & Pick<Props, "sort" | "onSort">) {
  const active = sort.column === column;
  const Icon = !active ? IconArrowsSort : sort.desc ? IconArrowDown : IconArrowUp;
  return (
    <th scope="col" className={classes[column]} aria-sort={active ? (sort.desc ? "descending" : "ascending") : undefined}>
      <button type="button" className={classes.sort} data-active={active || undefined} onClick={() => onSort(column, active ? !sort.desc : false)}>
        {titles[column]} <Icon size={13} aria-hidden />
      </button>
    </th>
  );
}

type Render = (row: AgentRow, index: number) => ReactNode;

function Rows({ rows, render }: { rows: AgentRow[]; render: Render }) {
  return rows.length > VIRTUAL_ABOVE ? <VirtualRows rows={rows} render={render} /> : <tbody>{rows.map(render)}</tbody>;
}

/** Two empty rows replace the rows out of sight, with their height: the table stays a table. */
function VirtualRows({ rows, render }: { rows: AgentRow[]; render: Render }) {
  const body = useRef<HTMLTableSectionElement>(null);
  const [top, setTop] = useState(0);
  useLayoutEffect(() => {
    if (body.current) setTop(body.current.getBoundingClientRect().top + window.scrollY);
  }, [rows.length]);
  const virtual = useWindowVirtualizer({
    count: rows.length,
    estimateSize: () => ROW_PX,
    getItemKey: (i) => rows[i]!.id,
    overscan: 12,
    scrollMargin: top,
  });
  const items = virtual.getVirtualItems();
  const before = items.length > 0 ? items[0]!.start - top : 0;
  const after = items.length > 0 ? virtual.getTotalSize() - (items[items.length - 1]!.end - top) : 0;
  return (
    <tbody ref={body}>
      {before > 0 ? <tr aria-hidden><td colSpan={8} style={{ height: before, padding: 0, border: 0 }} /></tr> : null}
      {items.map((item) => render(rows[item.index]!, item.index))}
      {after > 0 ? <tr aria-hidden><td colSpan={8} style={{ height: after, padding: 0, border: 0 }} /></tr> : null}
    </tbody>
  );
}

interface RowProps {
  agent: Agent;
  index: number;
  picked: boolean;
  policy: string;
  newest?: string;
  onToggle: (event: unknown) => void;
  onUpgrade: (agent: Agent) => void;
  onRollback: (agent: Agent) => void;
  onUnenroll: (agent: Agent) => void;
}

const AgentRowView = memo(function AgentRowView({ agent, index, picked, policy, newest, onToggle, onUpgrade, onRollback, onUnenroll }: RowProps) {
  const host = hostOf(agent);
  return (
    <tr aria-rowindex={index + 2} data-picked={picked || undefined}>
      <td className={classes.tick}>
        <Checkbox size="xs" aria-label={`Select ${host}`} checked={picked} onChange={onToggle} />
      </td>
      <td className={classes.status}><StatusBadge status={agent.status} /></td>
      <th scope="row" className={classes.host}>
        <Link to="/agents/$agentId" params={{ agentId: agent.id }} className={classes.link}>{host}</Link>
        <span className={classes.sub} title={platformOf(agent)}>{platformOf(agent) || osOf(agent)}</span>
        <span className={classes.narrowOnly}><VersionCell agent={agent} newest={newest} /></span>
      </th>
      <td className={classes.version}><VersionCell agent={agent} newest={newest} /></td>
      <td className={classes.policy}>{policy}</td>
      <td className={classes.seen}><Ago at={agent.last_checkin} /></td>
      <td className={classes.tags}>
        <Group gap={4}>
          {agent.tags.map((tag) => <Badge key={tag} size="sm" variant="default" radius="sm" tt="none" fw={500}>{tag}</Badge>)}
        </Group>
      </td>
      <td className={classes.menu}><AgentMenu agent={agent} onUpgrade={onUpgrade} onRollback={onRollback} onUnenroll={onUnenroll} /></td>
    </tr>
  );
}, (a, b) =>
  // onToggle is a new function at each render, but does the same for the same row.
  a.agent === b.agent && a.index === b.index && a.picked === b.picked && a.policy === b.policy && a.newest === b.newest &&
  a.onUpgrade === b.onUpgrade && a.onRollback === b.onRollback && a.onUnenroll === b.onUnenroll);
