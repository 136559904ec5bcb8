import { Button, CloseButton, Group, Paper, Select, Switch, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { RowSelectionState } from "@tanstack/react-table";
import { IconCircleArrowUp, IconPlus, IconSearch, IconServerOff, IconFilterOff } from "@tabler/icons-react";
import { getRouteApi } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { policiesQuery } from "~/api/queries";
import type { Agent } from "~/api/types";
import { AddAgentDialog } from "~/components/AddAgentDialog";
import { AgentTable } from "~/components/AgentTable";
import { Empty, Loading, LoadError, PageHead } from "~/components/Blocks";
import { Callout } from "~/components/Callout";
import { ReasonButton } from "~/components/ReasonButton";
import { RollbackDialog } from "~/components/RollbackDialog";
import { StatusSummary } from "~/components/StatusSummary";
import { UnenrollDialog } from "~/components/UnenrollDialog";
import { UpgradeDialog } from "~/components/UpgradeDialog";
import { useAgents, useNewestVersion, usePolicyName } from "~/hooks/useAgents";
import { announce } from "~/util/announce";
import { filterAgents } from "~/util/filter";
import { countGroups } from "~/util/status";
import type { AgentsSearch } from "~/util/search";
import { plural } from "~/util/words";
import classes from "./AgentsPage.module.css";

const route = getRouteApi("/shell/agents");

const NO_AGENTS: Agent[] = [];

export function AgentsPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const set = useCallback(
    (change: Partial<AgentsSearch>, replace = true) =>
      void navigate({ search: (old) => ({ ...old, ...change }), replace }),
    [navigate],
  );

  const list = useAgents(search.inactive ?? false);
  const agents = list.data?.items ?? NO_AGENTS;
  const policyName = usePolicyName();
  const newest = useNewestVersion();

  // The status bar counts what the other filters leave, so its numbers are what a click will show.
  const beforeStatus = useMemo(
    () => filterAgents(agents, { ...search, status: undefined }, policyName),
    [agents, search, policyName],
  );
  const shown = useMemo(
    () => (search.status ? filterAgents(beforeStatus, { status: search.status }, policyName) : beforeStatus),
    [beforeStatus, search.status, policyName],
  );
  const counts = useMemo(() => countGroups(beforeStatus), [beforeStatus]);

  const [selection, setSelection] = useState<RowSelectionState>({});
  // Only what is in sight counts as selected: a filter can never leave hidden agents in an upgrade.
  const selected = useMemo(() => shown.filter((a) => selection[a.id]), [shown, selection]);

  const [upgrading, setUpgrading] = useState<Agent[] | null>(null);
  const [goingBack, setGoingBack] = useState<Agent[] | null>(null);
  const [leaving, setLeaving] = useState<Agent | null>(null);
  const [adding, setAdding] = useState(false);
  const upgradeOne = useCallback((a: Agent) => setUpgrading([a]), []);
  const rollBackOne = useCallback((a: Agent) => setGoingBack([a]), []);

  return (
    <>
      <PageHead title="Agents" hint={<Hint total={list.data?.total} loaded={agents.length} newest={newest} />}>
        <Button variant="default" leftSection={<IconPlus size={16} aria-hidden />} onClick={() => setAdding(true)}>Add agent</Button>
        <ReasonButton
          leftSection={<IconCircleArrowUp size={16} aria-hidden />}
          reason={selected.length === 0 ? "Select the agents to upgrade first." : null}
          onClick={() => setUpgrading(selected)}
        >
          {selected.length > 0 ? `Upgrade ${plural(selected.length, "agent")}…` : "Upgrade…"}
        </ReasonButton>
      </PageHead>

      {list.isError && !list.data ? <LoadError what="The agents" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isError && list.data ? (
        <div className={classes.stale} role="alert">
          <Callout kind="warning">What you see is from the last time the server answered. It now says: {list.error.message}</Callout>
        </div>
      ) : null}

      {list.data ? (
        <>
          <StatusSummary counts={counts} chosen={search.status ?? []} onChange={(status) => set({ status: status.length > 0 ? status : undefined }, false)} />
          <Filters search={search} set={set} policyName={policyName} />
          <Announcer agents={agents} />
          <Paper className={classes.table}>
            {agents.length === 0 && !hasFilter(search) ? (
              <Empty icon={<IconServerOff size={36} stroke={1.5} aria-hidden />} title="No agent has enrolled yet">
                <p>Unpack an agent package on a host, run one command there, and the host appears here within seconds.</p>
                <Button leftSection={<IconPlus size={16} aria-hidden />} onClick={() => setAdding(true)}>Add the first agent</Button>
              </Empty>
            ) : shown.length === 0 ? (
              <Empty icon={<IconFilterOff size={32} stroke={1.5} aria-hidden />} title="No agent matches">
                <p>{plural(agents.length, "agent")} in the fleet, none with these filters.</p>
                <Button variant="default" onClick={() => void navigate({ search: {} })}>Clear filters</Button>
              </Empty>
            ) : (
              <AgentTable
                agents={shown}
                policyName={policyName}
                newest={newest}
                sort={{ column: search.sort ?? "host", desc: search.desc ?? false }}
                onSort={(sort, desc) => set({ sort, desc: desc || undefined })}
                selection={selection}
                onSelection={setSelection}
                onUpgrade={upgradeOne}
                onRollback={rollBackOne}
                onUnenroll={setLeaving}
              />
            )}
          </Paper>
        </>
      ) : list.isPending ? <Paper className={classes.table}><Loading rows={8} /></Paper> : null}

      <SelectionBar count={selected.length} of={shown.length} onClear={() => setSelection({})} onUpgrade={() => setUpgrading(selected)} onRollback={() => setGoingBack(selected)} />
      {goingBack ? <RollbackDialog agents={goingBack} onClose={() => setGoingBack(null)} onDone={() => setSelection({})} /> : null}
      {upgrading ? <UpgradeDialog agents={upgrading} onClose={() => setUpgrading(null)} onDone={() => setSelection({})} /> : null}
      {leaving ? <UnenrollDialog agent={leaving} onClose={() => setLeaving(null)} /> : null}
      {adding ? <AddAgentDialog onClose={() => setAdding(false)} /> : null}
    </>
  );
}

function Hint({ total, loaded, newest }: { total?: number; loaded: number; newest?: string }) {
  if (total === undefined) return <>Reading the fleet…</>;
  return (
    <>
      {total > loaded ? `The first ${loaded.toLocaleString()} of ${plural(total, "agent")}` : plural(total, "agent")}
      {newest ? <> · newest package <span className="mono">{newest}</span></> : " · no package published yet"}
    </>
  );
}

const FILTERS: (keyof AgentsSearch)[] = ["q", "status", "version", "policy", "action", "ids"];

function hasFilter(search: AgentsSearch): boolean {
  return FILTERS.some((f) => search[f] !== undefined);
}

interface FilterProps {
  search: AgentsSearch;
  set: (change: Partial<AgentsSearch>, replace?: boolean) => void;
  policyName: (id: string) => string;
}

function Filters({ search, set, policyName }: FilterProps) {
  const { data: policies } = useQuery(policiesQuery);
  const chips: [string, Partial<AgentsSearch>][] = [];
  if (search.version) chips.push([`Version ${search.version}`, { version: undefined }]);
  if (search.action) chips.push([`Upgrade ${search.action.slice(0, 8)}`, { action: undefined }]);
  if (search.ids) chips.push([plural(search.ids.length, "chosen agent"), { ids: undefined }]);
  if (search.policy && !policies?.some((p) => p.id === search.policy)) {
    chips.push([`Policy ${policyName(search.policy)}`, { policy: undefined }]);
  }
  return (
    <Group gap="sm" my="sm" role="search" aria-label="Filter agents">
      <TextInput
        className={classes.search}
        aria-label="Filter by host, version, policy, tag or id"
        placeholder="Filter by host, version, policy, tag or id"
        leftSection={<IconSearch size={16} aria-hidden />}
        value={search.q ?? ""}
        onChange={(e) => set({ q: e.currentTarget.value || undefined })}
        rightSection={search.q ? <CloseButton size="sm" aria-label="Clear the filter" onClick={() => set({ q: undefined })} /> : null}
      />
      {policies && policies.length > 1 ? (
        <Select
          aria-label="Policy"
          placeholder="Any policy"
          clearable
          w={190}
          data={policies.map((p) => ({ value: p.id, label: p.name }))}
          value={search.policy ?? null}
          onChange={(policy) => set({ policy: policy ?? undefined }, false)}
        />
      ) : null}
      {chips.map(([label, without]) => (
        <span key={label} className={classes.chip}>
          {label}
          <CloseButton size="xs" aria-label={`Remove filter ${label}`} onClick={() => set(without, false)} />
        </span>
      ))}
      <Switch
        className={classes.inactive}
        size="sm"
        label="Inactive and unenrolled too"
        checked={search.inactive ?? false}
        onChange={(e) => set({ inactive: e.currentTarget.checked || undefined }, false)}
      />
    </Group>
  );
}

interface SelectionProps {
  count: number;
  of: number;
  onClear: () => void;
  onUpgrade: () => void;
  onRollback: () => void;
}

function SelectionBar({ count, of, onClear, onUpgrade, onRollback }: SelectionProps) {
  if (count === 0) return null;
  return (
    <div className={classes.selection} role="region" aria-label="Selection">
      <Text size="sm" fw={600}>{count.toLocaleString()} of {of.toLocaleString()}<span className={classes.wide}> shown</span> selected</Text>
      <Button size="xs" variant="default" onClick={onClear}>Clear</Button>
      <Button size="xs" variant="default" onClick={onRollback}>Roll back…</Button>
      <Button size="xs" onClick={onUpgrade}>Upgrade…</Button>
    </div>
  );
}

/** Tells a screen reader how upgrades end while the table moves silently. */
function Announcer({ agents }: { agents: Agent[] }) {
  const before = useRef(agents);
  const [text, setText] = useState("");
  useEffect(() => {
    const told = announce(before.current, agents, Date.now());
    before.current = agents;
    if (told) setText(told);
  }, [agents]);
  return <div className="sr-only" aria-live="polite" data-testid="announcer">{text}</div>;
}
