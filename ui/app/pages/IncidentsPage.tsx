/** Problems that need an operator: open ones first, then those that somebody works on, then those that are resolved. */
import { Button } from "@mantine/core";
import { IconAlertTriangle, IconMoodCheck } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useState } from "react";
import { INCIDENTS_PER_PAGE, incidentCountQuery, incidentPageQuery } from "~/api/incidents";
import type { Incident } from "~/api/types";
import { Badge } from "~/components/base/Badge";
import { type Column, DataTable } from "~/components/base/DataTable";
import { Empty, LoadError, Loading, PageHead } from "~/components/base/Page";
import { Pager } from "~/components/base/Pager";
import { When } from "~/components/base/Time";
import { DecideDialog } from "~/components/incident/DecideDialog";
import classes from "~/components/incident/Incident.module.css";
import { IncidentText } from "~/components/incident/IncidentText";
import { useRolloutNames } from "~/hooks/useRolloutNames";
import {
  INCIDENT_STATES,
  type IncidentCommand,
  incidentCommand,
  incidentTitle,
  incidentWord,
  offered,
  severityLook,
  sortIncidents,
} from "~/util/incident/incident";
import { plural } from "~/util/words";

const route = getRouteApi("/shell/incidents");

interface Asked {
  what: IncidentCommand;
  incidents: readonly Incident[];
}

export function IncidentsPage() {
  const { state = "open", page = 1 } = route.useSearch();
  const navigate = route.useNavigate();
  const list = useQuery(incidentPageQuery(state, page));
  const [asked, setAsked] = useState<Asked | null>(null);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const rollouts = useRolloutNames();
  const rows = sortIncidents(list.data?.items ?? []);
  const picked = rows.filter((i) => selected.has(i.id));
  const over = state === "resolved";
  const fresh = !list.isPlaceholderData;

  const commands = (i: Incident) => <Commands incident={i} onAsk={(what) => setAsked({ what, incidents: [i] })} />;
  const columns: Column<Incident>[] = [
    { id: "severity", header: "Severity", width: "112px", nowrap: true, wide: true, cell: (i) => <Severity incident={i} /> },
    {
      id: "what",
      header: "What",
      cell: (i) => (
        <>
          <div className={classes.onPhone}>
            <Severity incident={i} />
          </div>
          <IncidentText incident={i} rollouts={rollouts} />
          <div className={classes.onPhone}>{over ? null : commands(i)}</div>
        </>
      ),
    },
    { id: "since", header: "Since", width: "130px", nowrap: true, wide: true, cell: (i) => <When at={i.opened_at} /> },
    ...(over
      ? []
      : [{ id: "commands", header: "Commands", quiet: true, width: state === "open" ? "212px" : "100px", align: "end" as const, wide: true, cell: commands }]),
  ];
  return (
    <>
      <PageHead
        title="Incidents"
        sub="Problems that need an operator: stopped rollouts, versions that hosts put back, and hosts that an upgrade has left unwell."
        docs="rollouts"
      />
      <nav className={classes.tabs} aria-label="Incidents by state">
        {INCIDENT_STATES.map((s) => (
          <Tab key={s} state={s} active={s === state} onLeave={() => setSelected(new Set())} />
        ))}
      </nav>
      {list.isError ? <LoadError what="The incidents" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? <Loading rows={6} /> : null}
      {list.data?.total === 0 && fresh ? <None state={state} /> : null}
      {rows.length > 0 ? (
        <>
          {picked.length > 0 ? (
            <div className={classes.bulk} role="region" aria-label="Selected incidents">
              <b>{plural(picked.length, "incident")} selected</b>
              {offered(picked).map((what) => (
                <Button key={what} variant="default" onClick={() => setAsked({ what, incidents: picked })}>
                  {incidentCommand[what]} {plural(picked.length, "incident")}…
                </Button>
              ))}
            </div>
          ) : null}
          <DataTable
            label={`${incidentWord[state]} incidents`}
            columns={columns}
            rows={rows}
            rowId={(i) => i.id}
            rowName={incidentTitle}
            density="comfortable"
            busy={list.isFetching && !fresh}
            selected={over ? undefined : selected}
            onSelect={over ? undefined : setSelected}
          />
          <Pager
            page={page}
            perPage={INCIDENTS_PER_PAGE}
            total={list.data?.total ?? 0}
            of="incidents"
            onPage={(p) => void navigate({ search: (old) => ({ ...old, page: p > 1 ? p : undefined }) })}
          />
        </>
      ) : null}
      {asked ? <DecideDialog {...asked} onClose={() => setAsked(null)} onDone={() => setSelected(new Set())} /> : null}
    </>
  );
}

function Tab({ state, active, onLeave }: { state: Incident["state"]; active: boolean; onLeave: () => void }) {
  const { data } = useQuery(incidentCountQuery(state));
  return (
    <Link
      to="/incidents"
      search={{ state: state === "open" ? undefined : state }}
      className={classes.tab}
      data-active={active || undefined}
      aria-current={active ? "page" : undefined}
      onClick={onLeave}
    >
      {incidentWord[state]} {data ? <span className={classes.count}>{data.total.toLocaleString()}</span> : null}
    </Link>
  );
}

function Severity({ incident }: { incident: Incident }) {
  const { word, tone } = severityLook(incident);
  return (
    <Badge tone={tone} icon={IconAlertTriangle}>
      {word}
    </Badge>
  );
}

function Commands({ incident: i, onAsk }: { incident: Incident; onAsk: (what: Asked["what"]) => void }) {
  const title = incidentTitle(i);
  return (
    <span className={classes.buttons}>
      {offered([i]).map((what) => (
        <Button key={what} size="compact-sm" variant="default" aria-label={`${incidentCommand[what]}: ${title}`} onClick={() => onAsk(what)}>
          {incidentCommand[what]}…
        </Button>
      ))}
    </span>
  );
}

function None({ state }: { state: Incident["state"] }) {
  if (state !== "open")
    return (
      <Empty title={`No ${state} incident`}>
        {state === "resolved" ? "What was resolved stays here, with who did it and why." : "What somebody works on is here."}
      </Empty>
    );
  return (
    <Empty icon={<IconMoodCheck size={36} stroke={1.5} aria-hidden />} title="Nothing needs you">
      A rollout that stops by itself, a version that several hosts put back, and a host that an upgrade leaves unwell appear here, with what to do.
    </Empty>
  );
}
