/** What agents run besides themselves: each component with its versions across the fleet. */

import { IconBox } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { componentsQuery } from "~/api/queries";
import type { ComponentSummary } from "~/api/types";
import { FleetNav } from "~/components/agents/FleetNav";
import { CopyBlock } from "~/components/base/CopyBlock";
import { type Column, DataTable } from "~/components/base/DataTable";
import { Empty, LoadError, Loading, PageHead } from "~/components/base/Page";
import { TextLink } from "~/components/base/TextLink";
import { runsQuery } from "~/util/agent/component";
import classes from "./ComponentsPage.module.css";

const columns: Column<ComponentSummary>[] = [
  {
    id: "name",
    header: "Component",
    width: "20%",
    cell: (c) => (
      <TextLink to="/agents" search={{ kuery: runsQuery(c.name) }} inherit fw={600}>
        {c.name}
      </TextLink>
    ),
  },
  { id: "versions", header: "Versions", cell: (c) => <Versions component={c} /> },
  { id: "agents", header: "Hosts", align: "end", width: "9%", cell: (c) => c.agents.toLocaleString() },
  { id: "healthy", header: "Healthy", align: "end", width: "9%", wide: true, cell: (c) => c.healthy.toLocaleString() },
  { id: "upgrading", header: "Upgrading", align: "end", width: "9%", wide: true, cell: (c) => c.upgrading.toLocaleString() },
  {
    id: "failed",
    header: "Upgrade failed",
    align: "end",
    width: "11%",
    wide: true,
    cell: (c) => <span className={c.failed > 0 ? classes.failed : undefined}>{c.failed.toLocaleString()}</span>,
  },
  { id: "runtime", header: "Runs as", width: "12%", wide: true, cell: (c) => c.runtimes.join(", ") },
];

export function ComponentsPage() {
  const list = useQuery(componentsQuery);
  return (
    <>
      <PageHead
        title="Components"
        crumbs={[{ label: "Agents", to: "/agents" }]}
        docs="agents"
        sub="A policy says which components its hosts run. A rollout, or the page of a host, upgrades them."
      />
      <FleetNav />
      {list.isError ? <LoadError what="The components" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? <Loading /> : null}
      {list.data?.length === 0 ? (
        <Empty icon={<IconBox size={36} stroke={1.5} aria-hidden />} title="No host runs a component yet">
          <p>Publish the package of a component, add the component to a policy, and install it with an upgrade:</p>
          <CopyBlock
            label="Commands that add a component to a policy"
            text={"muster policies update --example > components.yaml\nmuster policies update ID --components components.yaml"}
          />
        </Empty>
      ) : null}
      {list.data && list.data.length > 0 ? (
        <DataTable
          label="Components"
          columns={columns}
          rows={list.data}
          rowId={(c) => c.name}
          density="comfortable"
          busy={list.isFetching && !list.isPending}
        />
      ) : null}
    </>
  );
}

function Versions({ component: c }: { component: ComponentSummary }) {
  return (
    <ul className={classes.versions}>
      {c.versions.map((v) => (
        <li key={v.version} className={classes.version}>
          {v.version ? (
            <TextLink to="/agents" search={{ kuery: runsQuery(c.name, v.version) }} inherit className="mono">
              {v.version}
            </TextLink>
          ) : (
            <span>not installed</span>
          )}
          <span className={classes.track} aria-hidden>
            <span className={classes.share} style={{ width: `${(100 * v.agents) / Math.max(1, c.agents)}%` }} />
          </span>
          <span className={classes.count}>
            {v.agents.toLocaleString()}
            <span className="sr-only"> hosts</span>
          </span>
        </li>
      ))}
    </ul>
  );
}
