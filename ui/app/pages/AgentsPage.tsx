/** The hosts of the fleet: found by a query and facets, fifty at a time, and the orders for those that are selected. */
import { Button } from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import { IconFilterOff, IconServerOff } from "@tabler/icons-react";
import { getRouteApi } from "@tanstack/react-router";
import { useCallback, useMemo, useState } from "react";
import { AGENTS_PER_PAGE, AGENTS_REACHABLE } from "~/api/agents";
import type { Agent } from "~/api/types";
import classes from "~/components/agents/Agents.module.css";
import { BulkBar, type Order } from "~/components/agents/BulkBar";
import { Chips } from "~/components/agents/Chips";
import { tableColumns } from "~/components/agents/cells";
import { FacetColumn, FacetDrawer } from "~/components/agents/Facets";
import { FleetNav } from "~/components/agents/FleetNav";
import { OrderDialog } from "~/components/agents/Orders";
import { Tiles } from "~/components/agents/Tiles";
import { Toolbar } from "~/components/agents/Toolbar";
import { Callout } from "~/components/base/Callout";
import { DataTable } from "~/components/base/DataTable";
import { Empty, LoadError, Loading, PageHead } from "~/components/base/Page";
import { Pager } from "~/components/base/Pager";
import { QueryBar } from "~/components/query/QueryBar";
import { usePolicyName } from "~/hooks/useAgents";
import { useAgentsPage } from "~/hooks/useAgentsPage";
import { useFacets } from "~/hooks/useFacets";
import { useSelection } from "~/hooks/useSelection";
import { useTableLook } from "~/hooks/useTableLook";
import { shownColumns, widthOf } from "~/util/agents/agentColumns";
import { kueryOf, NO_FILTERS } from "~/util/agents/agentsQuery";
import { type Chosen, countOf, isMatching } from "~/util/agents/chosen";
import { hostOf } from "~/util/agents/facts";
import type { AgentsSearch, SortColumn } from "~/util/agents/search";
import { rollOutTo } from "~/util/plan/planSearch";

const route = getRouteApi("/shell/agents");
const LAST_PAGE = AGENTS_REACHABLE / AGENTS_PER_PAGE;

export function AgentsPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { list, data, fault } = useAgentsPage(search);
  const facets = useFacets(search);
  const look = useTableLook();
  const policyName = usePolicyName();
  const beside = useMediaQuery("(min-width: 1100px)", true, { getInitialValueInEffect: false });
  const [filtering, setFiltering] = useState(false);
  const [order, setOrder] = useState<{ order: Exclude<Order, "rollout">; chosen: Chosen } | null>(null);
  const current = !fault && !list.isPlaceholderData ? list.data : undefined;
  const selected = useSelection(search, current);

  const set = useCallback((change: Partial<AgentsSearch>) => void navigate({ search: (old) => ({ ...old, ...change }) }), [navigate]);
  const filter = useCallback((change: Partial<AgentsSearch>) => set({ page: undefined, ...change }), [set]);
  const open = useCallback((a: Agent) => void navigate({ to: "/agents/$agentId", params: { agentId: a.id } }), [navigate]);
  const columns = useMemo(() => shownColumns(look.columns), [look.columns]);
  const cells = useMemo(() => tableColumns(columns, policyName), [columns, policyName]);

  const give = (o: Order) => {
    const chosen = selected.chosen;
    if (!chosen || countOf(chosen) === 0) return;
    if (o !== "rollout") return setOrder({ order: o, chosen });
    void navigate({ to: "/rollouts/new", search: rollOutTo(isMatching(chosen) ? { kuery: chosen.kuery } : { agents: chosen.map((a) => a.id) }) });
  };

  const page = search.page ?? 1;
  const none = data?.total === 0;
  return (
    <>
      <PageHead title="Agents" docs="agents">
        <Button variant="default" onClick={() => void navigate({ to: "/enroll" })}>
          Add hosts
        </Button>
      </PageHead>
      <FleetNav />
      {none && !kueryOf(search) && !fault ? (
        <Empty icon={<IconServerOff size={36} stroke={1.5} aria-hidden />} title="No host has enrolled yet">
          <p>Unpack an agent package on a host and run one command there. The host appears here within seconds.</p>
          <Button onClick={() => void navigate({ to: "/enroll" })}>Show the command</Button>
        </Empty>
      ) : (
        <div className={classes.body}>
          {beside ? <FacetColumn facets={facets} refused={!!fault} search={search} onFilter={filter} /> : null}
          <div>
            <QueryBar value={search.kuery} fault={fault} onSearch={(kuery) => (kuery === search.kuery ? void list.refetch() : filter({ kuery }))} />
            <Tiles facets={facets} search={search} onFilter={filter} />
            <Chips search={search} facets={facets} onFilter={filter} />
            <Toolbar search={search} total={data?.total} refused={!!fault} look={look} onFilters={beside ? undefined : () => setFiltering(true)} />
            {list.isError && !fault && !data ? <LoadError what="The hosts" error={list.error} onRetry={() => void list.refetch()} /> : null}
            {list.isError && !fault && data ? (
              <div className={classes.stale} role="alert">
                <Callout kind="warning">The server could not be read. These are the hosts of its last answer. {list.error.message}</Callout>
              </div>
            ) : null}
            {!data && list.isPending ? <Loading rows={12} /> : null}
            {data && none ? (
              <Empty icon={<IconFilterOff size={32} stroke={1.5} aria-hidden />} title="No host matches">
                <p>{search.inactive ? "Names of hosts are compared by case." : "Names of hosts are compared by case, and inactive hosts are not shown."}</p>
                <Button variant="default" onClick={() => set({ ...NO_FILTERS, kuery: undefined })}>
                  Clear the search and all filters
                </Button>
              </Empty>
            ) : null}
            {data && !none ? (
              // The rows of the query before a refused one are shown, but nothing can be done with them.
              <div inert={!!fault} className={fault ? classes.before : undefined} data-testid="answer">
                <DataTable
                  label="Hosts"
                  columns={cells}
                  rows={data.items}
                  rowId={(a) => a.id}
                  rowName={hostOf}
                  fixed={widthOf(columns)}
                  density={look.density}
                  busy={list.isFetching && list.isPlaceholderData}
                  sort={{ column: search.sort ?? "host", desc: search.desc ?? false }}
                  onSort={(s) => filter({ sort: s.column as SortColumn, desc: s.desc || undefined })}
                  selected={selected.ids}
                  onSelect={selected.pick}
                  onOpen={open}
                />
                <Pager
                  page={page}
                  perPage={AGENTS_PER_PAGE}
                  total={data.total}
                  of="hosts"
                  last={LAST_PAGE}
                  onPage={(p) => set({ page: p > 1 ? p : undefined })}
                />
                <BulkBar
                  count={selected.chosen && countOf(selected.chosen)}
                  everything={selected.everything}
                  total={current?.total}
                  noAll={current ? null : "The server counts the hosts."}
                  onAll={selected.pickAll}
                  onClear={selected.clear}
                  onOrder={give}
                />
              </div>
            ) : null}
          </div>
        </div>
      )}
      {filtering && !beside ? <FacetDrawer facets={facets} refused={!!fault} search={search} onFilter={filter} onClose={() => setFiltering(false)} /> : null}
      {order ? <OrderDialog order={order.order} chosen={order.chosen} onClose={() => setOrder(null)} onDone={selected.clear} /> : null}
    </>
  );
}
