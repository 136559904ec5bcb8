import { Stack, Table, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { policiesQuery } from "~/api/queries";
import type { Policy, PolicyComponent } from "~/api/types";
import { Empty, Loading, LoadError, PageHead, Panel } from "~/components/Blocks";
import { CopyBlock } from "~/components/CopyBlock";
import { Ago } from "~/components/Now";
import { TextLink } from "~/components/TextLink";
import { healthText } from "~/util/component";
import { quoted } from "~/util/kql";
import { plural, shellQuote } from "~/util/words";
import classes from "./Tables.module.css";

export function PoliciesPage() {
  const list = useQuery(policiesQuery);
  const first = list.data?.find((p) => p.components?.length) ?? list.data?.[0];
  return (
    <>
      <PageHead title="Policies" hint="Groups of agents, and the components that they run" />
      {list.isError ? <LoadError what="The policies" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? <Panel><Loading /></Panel> : null}
      {list.data?.length === 0 ? <Panel><Empty title="There is no policy">Create one with <span className="mono">muster policies create NAME</span>.</Empty></Panel> : null}
      <Stack gap="md">
        {list.data?.map((p) => <OnePolicy key={p.id} policy={p} />)}
        {first ? (
          <Panel title="Change the components of a policy">
            <Stack gap="xs">
              <Text size="sm">A file has all components of a policy, and replaces those it has. A new version in it changes no host: an upgrade or a rollout of the component does.</Text>
              <CopyBlock label="Commands that change the components of a policy" text={`muster policies update --example > components.yaml\nmuster policies update ${shellQuote(first.id)} --components components.yaml`} />
            </Stack>
          </Panel>
        ) : null}
      </Stack>
    </>
  );
}

function OnePolicy({ policy: p }: { policy: Policy }) {
  const components = p.components ?? [];
  return (
    <div id={`policy-${p.id}`}>
      <Panel
        title={p.name}
        flush
        aside={(
          <Text size="xs" c="dimmed">
            <span className="mono">{p.id}</span> · <TextLink to="/agents" search={{ kuery: `policy_id: ${quoted(p.id)}` }} inherit underline="always">{plural(p.agents, "agent")}</TextLink> · revision {p.revision}, by {p.updated_by} <Ago at={p.updated_at} />
          </Text>
        )}
      >
        {components.length === 0 ? <Text size="sm" c="dimmed" p="md">Its agents run no components.</Text> : (
          <div className={classes.scroll} tabIndex={0} role="region" aria-label={`Components of ${p.name}`}>
            <Table fz="sm" verticalSpacing={8} horizontalSpacing="md" className={classes.table}>
              <Table.Thead>
                <Table.Tr>{["Component", "Runtime", "Version", "Health after an upgrade", "Configuration"].map((h) => <Table.Th key={h} scope="col">{h}</Table.Th>)}</Table.Tr>
              </Table.Thead>
              <Table.Tbody>{components.map((c) => <Row key={c.name} component={c} />)}</Table.Tbody>
            </Table>
          </div>
        )}
      </Panel>
    </div>
  );
}

/** What the hosts of the policy run of a component that must not run mixed versions. */
function inForceText(c: PolicyComponent): string {
  if (!c.in_force) return "in lockstep, no version in force yet";
  if (c.in_force.changing) return "in lockstep, a rollout is changing it";
  return `in lockstep, ${c.in_force.version} in force`;
}

function Row({ component: c }: { component: PolicyComponent }) {
  return (
    <Table.Tr>
      <Table.Th scope="row" fw={600}>{c.name}{c.artifact?.image ? <div className={classes.long}>{c.artifact.image}</div> : null}</Table.Th>
      <Table.Td>{c.runtime}</Table.Td>
      <Table.Td className={classes.nowrap}>{c.version ? <span className="mono">{c.version}</span> : "any"}{c.lockstep ? <div className={classes.long}>{inForceText(c)}</div> : null}</Table.Td>
      <Table.Td>{healthText(c)}</Table.Td>
      <Table.Td>{c.server_config ? "rendered by the server, where the package allows it" : "from the package"}</Table.Td>
    </Table.Tr>
  );
}
