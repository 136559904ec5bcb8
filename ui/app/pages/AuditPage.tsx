/** Who changed what, how and why. */
import { Button } from "@mantine/core";
import { IconHistory } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { TRAIL_PER_PAGE, trailQuery } from "~/api/overview";
import type { AuditEntry } from "~/api/types";
import classes from "~/components/audit/Audit.module.css";
import { EntryDetails } from "~/components/audit/EntryDetails";
import { Filters } from "~/components/audit/Filters";
import { type Column, DataTable } from "~/components/base/DataTable";
import { Empty, LoadError, Loading, PageHead } from "~/components/base/Page";
import { Pager } from "~/components/base/Pager";
import { TextLink } from "~/components/base/TextLink";
import { When } from "~/components/base/Time";
import { useRolloutNames } from "~/hooks/useRolloutNames";
import { hostBeside, rolloutBeside, textOfEntry } from "~/util/audit/audit";
import type { AuditSearch } from "~/util/audit/auditSearch";
import { compact } from "~/util/searchParts";

const route = getRouteApi("/shell/audit");

/** The server's own steps have this actor. */
const SYSTEM = "muster";

export function AuditPage() {
  const { page = 1, ...filter } = route.useSearch();
  const navigate = route.useNavigate();
  const trail = useQuery(trailQuery(filter, page));
  const rollouts = useRolloutNames();
  const change = (part: AuditSearch) => void navigate({ search: (old) => compact({ ...old, page: undefined, ...part }) });
  const filtered = Object.keys(filter).length > 0;
  const columns: Column<AuditEntry>[] = [
    { id: "at", header: "When", width: "132px", nowrap: true, cell: (e) => <When at={e.at} /> },
    { id: "by", header: "By", width: "120px", wide: true, cell: (e) => <By entry={e} /> },
    {
      id: "what",
      header: "What",
      cell: (e) => (
        <>
          <div className={classes.onPhone}>
            <By entry={e} />
          </div>
          <What entry={e} rollouts={rollouts} />
        </>
      ),
    },
    { id: "verb", header: "Verb", width: "200px", nowrap: true, wide: true, cell: (e) => <span className={`mono ${classes.verb}`}>{e.verb}</span> },
  ];
  return (
    <>
      <PageHead title="Audit" sub="Who changed what, how and why. The server records every call that changes something, and its own steps." docs="server" />
      <Filters search={filter} onChange={change} />
      {trail.isError ? <LoadError what="The audit trail" error={trail.error} onRetry={() => void trail.refetch()} /> : null}
      {trail.isPending ? <Loading rows={10} /> : null}
      {trail.data?.total === 0 ? (
        <Empty icon={<IconHistory size={36} stroke={1.5} aria-hidden />} title={filtered ? "No entry matches" : "Nothing was changed yet"}>
          {filtered ? (
            <Button variant="default" onClick={() => void navigate({ search: {} })}>
              Clear the filters
            </Button>
          ) : (
            "Each change appears here, with who made it and why."
          )}
        </Empty>
      ) : null}
      {trail.data && trail.data.items.length > 0 ? (
        <>
          <DataTable
            label="Audit trail"
            columns={columns}
            rows={trail.data.items}
            rowId={(e) => e.id}
            rowName={textOfEntry}
            busy={trail.isFetching && trail.isPlaceholderData}
            expanded={(e) => <EntryDetails entry={e} />}
          />
          <Pager
            page={page}
            perPage={TRAIL_PER_PAGE}
            total={trail.data.total}
            of="entries"
            onPage={(p) => void navigate({ search: (old) => compact({ ...old, page: p > 1 ? p : undefined }) })}
          />
        </>
      ) : null}
    </>
  );
}

function By({ entry: e }: { entry: AuditEntry }) {
  return e.actor === SYSTEM ? <span className={classes.muster}>the server</span> : e.actor;
}

function What({ entry: e, rollouts }: { entry: AuditEntry; rollouts: ReadonlyMap<string, string> }) {
  const rollout = rolloutBeside(e, rollouts);
  const host = hostBeside(e);
  return (
    <span className={classes.text}>
      {textOfEntry(e)}
      {host ? (
        <span className={classes.beside}>
          {" "}
          <TextLink to="/agents/$agentId" params={{ agentId: host }} inherit underline="always">
            the host
          </TextLink>
        </span>
      ) : null}
      {rollout ? (
        <span className={classes.beside}>
          {" "}
          <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: rollout.id }} inherit underline="always">
            {rollout.name}
          </TextLink>
        </span>
      ) : null}
      {e.why ? <span className={classes.why}>Reason: {e.why}</span> : null}
    </span>
  );
}
