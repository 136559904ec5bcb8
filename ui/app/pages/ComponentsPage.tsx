import { Table, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconBox } from "@tabler/icons-react";
import { componentsQuery } from "~/api/queries";
import type { ComponentSummary } from "~/api/types";
import { Empty, Loading, LoadError, PageHead, Panel } from "~/components/Blocks";
import { CopyBlock } from "~/components/CopyBlock";
import { TextLink } from "~/components/TextLink";
import { runsQuery } from "~/util/component";
import classes from "./Tables.module.css";

export function ComponentsPage() {
  const list = useQuery(componentsQuery);
  const items = list.data ?? [];
  return (
    <>
      <PageHead title="Components" hint="What agents run besides themselves. Policies say which agents run a component; a rollout or an agent's page upgrades it." />
      <Panel flush>
        {list.isError ? <LoadError what="The components" error={list.error} onRetry={() => void list.refetch()} /> : null}
        {list.isPending ? <Loading rows={3} /> : null}
        {list.data && items.length === 0 ? (
          <Empty icon={<IconBox size={36} stroke={1.5} aria-hidden />} title="No agent runs a component yet">
            <p>Publish the package of a component, add the component to a policy, and install it with an upgrade:</p>
            <CopyBlock label="Commands that add a component to a policy" text={"muster policies update --example > components.yaml\nmuster policies update ID --components components.yaml"} />
          </Empty>
        ) : null}
        {items.length > 0 ? (
          <div className={classes.scroll} tabIndex={0} role="region" aria-label="Components">
            <Table fz="sm" verticalSpacing={8} horizontalSpacing="md" className={classes.table}>
              <Table.Thead>
                <Table.Tr>{["Component", "Runtime", "Agents", "Healthy", "Upgrading", "Failed", "Versions"].map((h) => <Table.Th key={h} scope="col">{h}</Table.Th>)}</Table.Tr>
              </Table.Thead>
              <Table.Tbody>{items.map((c) => <Row key={c.name} component={c} />)}</Table.Tbody>
            </Table>
          </div>
        ) : null}
      </Panel>
      {items.length > 0 ? <Text size="xs" c="dimmed" mt="xs">“Failed” are agents on which the last upgrade of the component failed or was rolled back.</Text> : null}
    </>
  );
}

function Row({ component: c }: { component: ComponentSummary }) {
  return (
    <Table.Tr>
      <Table.Th scope="row" fw={600}><TextLink to="/agents" search={{ kuery: runsQuery(c.name) }} inherit>{c.name}</TextLink></Table.Th>
      <Table.Td className={classes.nowrap}>{c.runtimes.join(", ")}</Table.Td>
      <Table.Td>{c.agents.toLocaleString()}</Table.Td>
      <Table.Td>{c.healthy.toLocaleString()}</Table.Td>
      <Table.Td>{c.upgrading.toLocaleString()}</Table.Td>
      <Table.Td><span className={classes.count} data-bad={c.failed > 0 || undefined}>{c.failed.toLocaleString()}</span></Table.Td>
      <Table.Td>
        <ul className={classes.inline}>
          {c.versions.map((v) => <li key={v.version}>{v.version ? <span className="mono">{v.version}</span> : "not installed"} <span className={classes.sub}>({v.agents.toLocaleString()})</span></li>)}
        </ul>
      </Table.Td>
    </Table.Tr>
  );
}
