import { Button, TextInput } from "@mantine/core";
import { IconSearch, IconTargetArrow } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useState } from "react";
import { FLEETS_PER_PAGE, fleetsQuery } from "~/api/queries";
import type { Fleet } from "~/api/types";
import { RolloutBadge } from "~/components/base/Badge";
import { CopyBlock } from "~/components/base/CopyBlock";
import { type Column, DataTable } from "~/components/base/DataTable";
import { Empty, LoadError, Loading, PageHead } from "~/components/base/Page";
import { Pager } from "~/components/base/Pager";
import { TextLink } from "~/components/base/TextLink";
import { When } from "~/components/base/Time";
import classes from "~/components/fleet/Fleet.module.css";
import { FleetBadges, ReadyBadge } from "~/components/fleet/FleetBadges";
import { partsOf } from "~/util/fleet/fleet";
import { shortHash } from "~/util/rollout/preview";

const route = getRouteApi("/shell/fleets");

const columns: Column<Fleet>[] = [
  {
    id: "name",
    header: "Name",
    cell: (f) => (
      <Link className={classes.name} to="/fleets/$name" params={{ name: f.metadata.name }}>
        {f.metadata.name}
      </Link>
    ),
  },
  {
    id: "ready",
    header: "State",
    cell: (f) => (
      <span className={classes.badges}>
        <ReadyBadge fleet={f} />
        <FleetBadges fleet={f} />
      </span>
    ),
  },
  { id: "hosts", header: "Hosts", align: "end", cell: (f) => (f.status?.agents ?? 0).toLocaleString() },
  { id: "versions", header: "Versions", width: "30%", cell: (f) => <VersionsOf fleet={f} /> },
  {
    id: "rollout",
    header: "Rollout",
    nowrap: true,
    cell: (f) =>
      f.status?.rollout ? (
        <TextLink
          to="/rollouts/$rolloutId"
          params={{ rolloutId: f.status.rollout.id }}
          inherit
          aria-label={`Rollout of ${f.metadata.name}: ${f.status.rollout.state}`}
        >
          <RolloutBadge rollout={{ state: f.status.rollout.state }} />
        </TextLink>
      ) : (
        <span className={classes.sub}>none</span>
      ),
  },
  {
    id: "hash",
    header: "Hash",
    nowrap: true,
    wide: true,
    cell: (f) =>
      f.status?.requestedRolloutHash ? (
        <span className="mono" title={f.status.requestedRolloutHash}>
          {shortHash(f.status.requestedRolloutHash)}
        </span>
      ) : (
        <span className={classes.sub}>none yet</span>
      ),
  },
  { id: "created", header: "Created", nowrap: true, wide: true, cell: (f) => <When at={f.metadata.creationTimestamp} /> },
];

export function FleetsPage() {
  const { labels, page = 1 } = route.useSearch();
  const navigate = route.useNavigate();
  const list = useQuery(fleetsQuery(page, labels));
  const items = list.data?.items ?? [];
  const total = list.data?.metadata.total ?? 0;
  const none = list.data && total === 0 && !labels;
  return (
    <>
      <PageHead title="Fleets" docs="fleets" sub="Each declares which versions some hosts run. Change its spec, and Muster rolls the change out.">
        <Button renderRoot={(props) => <Link {...props} to="/fleets/-new" />}>Create fleet</Button>
      </PageHead>
      {none ? null : <LabelFilter key={labels} labels={labels ?? ""} onFilter={(l) => void navigate({ search: { labels: l || undefined } })} />}
      {list.isError ? <LoadError what="The fleets" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? <Loading /> : null}
      {none ? (
        <Empty icon={<IconTargetArrow size={36} stroke={1.5} aria-hidden />} title="No fleet yet">
          <p>A fleet is a file that says which hosts run which versions. It can be kept in a repository: applying the same file again changes nothing.</p>
          <p>The command line applies the same file as this page:</p>
          <CopyBlock label="Commands that create a fleet" text={"muster fleets example > fleet.yaml\nmuster apply -f fleet.yaml"} />
        </Empty>
      ) : null}
      {list.data && total === 0 && labels ? (
        <Empty title="No fleet has these labels">
          <Button variant="default" onClick={() => void navigate({ search: {} })}>
            Clear the filter
          </Button>
        </Empty>
      ) : null}
      {items.length > 0 ? (
        <>
          <DataTable
            label="Fleets"
            columns={columns}
            rows={items}
            rowId={(f) => f.metadata.name}
            density="comfortable"
            busy={list.isPlaceholderData}
            onOpen={(f) => void navigate({ to: "/fleets/$name", params: { name: f.metadata.name } })}
          />
          <Pager
            page={page}
            perPage={FLEETS_PER_PAGE}
            total={total}
            of="fleets"
            onPage={(p) => void navigate({ search: { labels, page: p > 1 ? p : undefined } })}
          />
        </>
      ) : null}
    </>
  );
}

function LabelFilter({ labels, onFilter }: { labels: string; onFilter: (labels: string) => void }) {
  const [typed, setTyped] = useState(labels);
  return (
    <form
      role="search"
      aria-label="Filter fleets"
      className={classes.filter}
      onSubmit={(e) => {
        e.preventDefault();
        onFilter(typed.trim());
      }}
    >
      <TextInput
        aria-label="Labels"
        placeholder="Labels: team=web,stage=prod"
        leftSection={<IconSearch size={14} aria-hidden />}
        value={typed}
        onChange={(e) => setTyped(e.currentTarget.value)}
      />
    </form>
  );
}

function VersionsOf({ fleet: f }: { fleet: Fleet }) {
  return partsOf(f).map((p) => (
    <div key={p.part}>
      {p.part}{" "}
      {p.versions.length === 0 ? (
        <span className={classes.sub}>not counted yet</span>
      ) : (
        p.versions.map((v, i) => (
          <span key={v.version}>
            {i > 0 ? ", " : ""}
            {v.version ? <span className="mono">{v.version}</span> : "not installed"} <span className={classes.sub}>({v.agents.toLocaleString()})</span>
          </span>
        ))
      )}
    </div>
  ));
}
