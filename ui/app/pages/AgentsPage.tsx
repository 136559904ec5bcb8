import { Button, CloseButton, Group, Paper, Select, Switch, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { RowSelectionState } from "@tanstack/react-table";
import { IconCircleArrowUp, IconPlus, IconSearch, IconServerOff, IconFilterOff } from "@tabler/icons-react";
import { getRouteApi } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import { agentCountQuery, policiesQuery } from "~/api/queries";
import type { Agent } from "~/api/types";
import { AddAgentDialog } from "~/components/AddAgentDialog";
import { AgentTable } from "~/components/AgentTable";
import { Empty, Loading, LoadError, PageHead } from "~/components/Blocks";
import { Callout } from "~/components/Callout";
import { QueryBar } from "~/components/QueryBar";
import { ReasonButton } from "~/components/ReasonButton";
import { RollbackDialog } from "~/components/RollbackDialog";
import { ServerRemarks } from "~/components/ServerRemarks";
import { StatusSummary } from "~/components/StatusSummary";
import { UnenrollDialog } from "~/components/UnenrollDialog";
import { UpgradeDialog } from "~/components/UpgradeDialog";
import { useAgents, useNewestVersion, usePolicyName } from "~/hooks/useAgents";
import { announce } from "~/util/announce";
import { filterAgents } from "~/util/filter";
import { countOf, orderOf, type Chosen, type Matching } from "~/util/matching";
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

  const { kuery, inactive = false } = search;
  const { list, data, fault } = useAgents(inactive, kuery);
  const agents = data?.items ?? NO_AGENTS;
  const policyName = usePolicyName();
  const newest = useNewestVersion();

  // The status bar counts the agents that the other filters leave: its numbers are what a click will show.
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
  // Only visible agents count as selected, so that no filter hides an agent that is upgraded.
  // The rows of the previous query do not count either.
  const picked = useMemo(() => (fault ? NO_AGENTS : shown.filter((a) => selection[a.id])), [shown, selection, fault]);

  // All matching agents, by their query: the selection ends when the page shows another query.
  const order = useMemo(() => orderOf(search), [search]);
  const [everything, setEverything] = useState<Pick<Matching, "kuery" | "inactive"> | null>(null);
  const meant = everything && !fault && "kuery" in order && order.kuery === everything.kuery && inactive === everything.inactive ? everything : null;
  // The list has the count, unless filters of this page hide part of it or the list is incomplete.
  const counted = useQuery({ ...agentCountQuery(inactive, meant?.kuery ?? ""), enabled: !!meant });
  const matching: Matching | null = useMemo(
    () => (meant && counted.data !== undefined ? { ...meant, count: counted.data } : null),
    [meant, counted.data],
  );
  const selected: Chosen = matching ?? picked;
  const count = countOf(selected);
  const rowsPicked = useMemo(() => (meant ? Object.fromEntries(shown.map((a) => [a.id, true as const])) : selection), [meant, shown, selection]);
  const select = useCallback((rows: RowSelectionState) => {
    setEverything(null);
    setSelection(rows);
  }, []);
  const clear = () => select({});

  const [upgrading, setUpgrading] = useState<Chosen | null>(null);
  const [goingBack, setGoingBack] = useState<Chosen | null>(null);
  const [leaving, setLeaving] = useState<Chosen | null>(null);
  const [adding, setAdding] = useState(false);
  const upgradeOne = useCallback((a: Agent) => setUpgrading([a]), []);
  const rollBackOne = useCallback((a: Agent) => setGoingBack([a]), []);
  const unenrollOne = useCallback((a: Agent) => setLeaving([a]), []);

  return (
    <>
      <PageHead title="Agents" hint={fault ? "The query cannot be parsed. The agents below are those found before." : <Hint total={data?.total} loaded={agents.length} query={!!kuery} newest={newest} />}>
        <Button variant="default" leftSection={<IconPlus size={16} aria-hidden />} onClick={() => setAdding(true)}>Add agent</Button>
        <ReasonButton
          leftSection={<IconCircleArrowUp size={16} aria-hidden />}
          reason={count === 0 ? "Select the agents to upgrade first." : null}
          onClick={() => setUpgrading(selected)}
        >
          {count > 0 ? `Upgrade ${plural(count, "agent")}…` : "Upgrade…"}
        </ReasonButton>
      </PageHead>

      <ServerRemarks link />
      <QueryBar value={kuery} fault={fault?.message} onSearch={(next) => (next === kuery ? void list.refetch() : set({ kuery: next }, false))} />

      {list.isError && !data && !fault ? <LoadError what="The agents" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isError && data && !fault ? (
        <div className={classes.stale} role="alert">
          <Callout kind="warning">The server could not be read; the agents below are from its last answer. {list.error.message}</Callout>
        </div>
      ) : null}

      {data ? (
        // The rows of the previous query are shown, but actions on them are disabled.
        <div inert={!!fault} data-testid="answer" className={fault ? classes.before : undefined} aria-busy={list.isPlaceholderData}>
          <StatusSummary counts={counts} chosen={search.status ?? []} onChange={(status) => set({ status: status.length > 0 ? status : undefined }, false)} />
          <Filters search={search} set={set} policyName={policyName} />
          <Announcer agents={agents} />
          <Paper className={classes.table}>
            {agents.length === 0 && !hasFilter(search) ? (
              <Empty icon={<IconServerOff size={36} stroke={1.5} aria-hidden />} title="No agent has enrolled yet">
                <p>Unpack an agent package on a host, run one command there, and the host appears here within seconds.</p>
                <Button leftSection={<IconPlus size={16} aria-hidden />} onClick={() => setAdding(true)}>Add the first agent</Button>
              </Empty>
            ) : agents.length === 0 && kuery ? (
              <Empty icon={<IconFilterOff size={32} stroke={1.5} aria-hidden />} title="No agent matches the query">
                <p><code className={`mono ${classes.query}`}>{kuery}</code> matches no agent{inactive ? "" : " among the active agents"}.</p>
                <Button variant="default" onClick={() => set({ kuery: undefined }, false)}>Clear query</Button>
              </Empty>
            ) : shown.length === 0 ? (
              <Empty icon={<IconFilterOff size={32} stroke={1.5} aria-hidden />} title="No agent matches">
                <p>{plural(agents.length, "agent")} {kuery ? (agents.length === 1 ? "matches the query" : "match the query") : "in the fleet"}, none match these filters.</p>
                <Button variant="default" onClick={() => void navigate({ search: kuery ? { kuery } : {} })}>Clear filters</Button>
              </Empty>
            ) : (
              <AgentTable
                agents={shown}
                policyName={policyName}
                newest={newest}
                sort={{ column: search.sort ?? "host", desc: search.desc ?? false }}
                onSort={(sort, desc) => set({ sort, desc: desc || undefined })}
                selection={rowsPicked}
                onSelection={select}
                onUpgrade={upgradeOne}
                onRollback={rollBackOne}
                onUnenroll={unenrollOne}
              />
            )}
          </Paper>
        </div>
      ) : fault ? null : list.isPending ? <Paper className={classes.table}><Loading rows={8} /></Paper> : null}

      {meant || picked.length > 0 ? (
        <SelectionBar
          words={meant ? (matching ? `All ${matching.count.toLocaleString()} matching` : "Counting matching agents…") : `${picked.length.toLocaleString()} of ${shown.length.toLocaleString()}`}
          shown={!meant}
          ready={count > 0}
          all={meant || picked.length < shown.length ? null : (
            <ReasonButton
              size="xs"
              variant="default"
              reason={"why" in order ? order.why : list.isPlaceholderData ? "Wait for the result of the query." : null}
              onClick={() => "kuery" in order && setEverything({ kuery: order.kuery, inactive })}
            >
              {allWords(search, data?.total ?? 0)}
            </ReasonButton>
          )}
          onClear={clear}
          onUpgrade={() => setUpgrading(selected)}
          onRollback={() => setGoingBack(selected)}
          onUnenroll={() => setLeaving(selected)}
        />
      ) : null}
      {counted.error && meant ? <Callout kind="error" title="Matching agents could not be counted">{counted.error.message}</Callout> : null}
      {goingBack ? <RollbackDialog chosen={goingBack} onClose={() => setGoingBack(null)} onDone={clear} /> : null}
      {upgrading ? <UpgradeDialog chosen={upgrading} onClose={() => setUpgrading(null)} onDone={clear} /> : null}
      {leaving ? <UnenrollDialog chosen={leaving} onClose={() => setLeaving(null)} onDone={clear} /> : null}
      {adding ? <AddAgentDialog onClose={() => setAdding(false)} /> : null}
    </>
  );
}

/** The number is shown if the list has it; with filters of this page the server counts once the button is pressed. */
function allWords(search: AgentsSearch, total: number): string {
  if (hasFilter({ ...search, kuery: undefined })) return "Select all matching";
  return search.kuery ? `Select all ${total.toLocaleString()} matching` : `Select the whole fleet, ${total.toLocaleString()}`;
}

function Hint({ total, loaded, query, newest }: { total?: number; loaded: number; query: boolean; newest?: string }) {
  if (total === undefined) return <>Loading agents…</>;
  return (
    <>
      {total > loaded ? `The first ${loaded.toLocaleString()} of ${plural(total, "agent")}` : plural(total, "agent")}
      {query ? (total === 1 ? " matches" : " match") : ""}
      {newest ? <> · newest package <span className="mono">{newest}</span></> : " · no package published yet"}
    </>
  );
}

const FILTERS: (keyof AgentsSearch)[] = ["kuery", "q", "status", "version", "policy", "action", "ids"];

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
        label="Include inactive and unenrolled"
        checked={search.inactive ?? false}
        onChange={(e) => set({ inactive: e.currentTarget.checked || undefined }, false)}
      />
    </Group>
  );
}

interface SelectionProps {
  words: string;
  /** Whether words describe the agents shown. */
  shown: boolean;
  ready: boolean;
  all: ReactNode;
  onClear: () => void;
  onUpgrade: () => void;
  onRollback: () => void;
  onUnenroll: () => void;
}

function SelectionBar({ words, shown, ready, all, onClear, onUpgrade, onRollback, onUnenroll }: SelectionProps) {
  const reason = ready ? null : "No agent is selected.";
  return (
    <div className={classes.selection} role="region" aria-label="Selection">
      <Text size="sm" fw={600}>{words}{shown ? <><span className={classes.wide}> shown</span> selected</> : null}</Text>
      {all}
      <Button size="xs" variant="default" onClick={onClear}>Clear</Button>
      <ReasonButton size="xs" variant="default" reason={reason} onClick={onUnenroll}>Unenroll…</ReasonButton>
      <ReasonButton size="xs" variant="default" reason={reason} onClick={onRollback}>Roll back…</ReasonButton>
      <ReasonButton size="xs" reason={reason} onClick={onUpgrade}>Upgrade…</ReasonButton>
    </div>
  );
}

/** Announces the ends of upgrades to a screen reader. */
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
