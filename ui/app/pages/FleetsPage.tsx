import { Button, Group, Table, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconPlus, IconSearch, IconTargetArrow } from "@tabler/icons-react";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useState } from "react";
import { FLEETS_PER_PAGE, fleetsQuery } from "~/api/queries";
import type { Fleet } from "~/api/types";
import { Empty, Loading, LoadError, PageHead, Panel } from "~/components/Blocks";
import { CopyBlock } from "~/components/CopyBlock";
import { FleetBadges, ReadyBadge } from "~/components/fleet/FleetBadges";
import { Ago } from "~/components/Now";
import { ReasonButton } from "~/components/ReasonButton";
import { RolloutBadge } from "~/components/rollout/RolloutBadge";
import board from "~/components/rollout/Rollout.module.css";
import { TextLink } from "~/components/TextLink";
import { partsOf } from "~/util/fleet";
import { shortHash } from "~/util/preview";
import classes from "./Tables.module.css";

const route = getRouteApi("/shell/fleets");

export function FleetsPage() {
  const { labels, page = 1 } = route.useSearch();
  const navigate = route.useNavigate();
  const list = useQuery(fleetsQuery(page, labels));
  const items = list.data?.items ?? [];
  const total = list.data?.metadata.total ?? 0;
  const pages = Math.max(1, Math.ceil(total / FLEETS_PER_PAGE));
  const none = list.data && total === 0 && !labels;
  return (
    <>
      <PageHead title="Fleets" hint="Each declares which versions some agents run. Change its spec, and Muster rolls the change out.">
        <Button leftSection={<IconPlus size={16} aria-hidden />} renderRoot={(props) => <Link {...props} to="/fleets/-new" />}>New fleet…</Button>
      </PageHead>
      {none ? null : <LabelFilter key={labels} labels={labels ?? ""} onFilter={(l) => void navigate({ search: { labels: l || undefined } })} />}
      <Panel flush>
        {list.isError ? <LoadError what="The fleets" error={list.error} onRetry={() => void list.refetch()} /> : null}
        {list.isPending ? <Loading rows={3} /> : null}
        {none ? (
          <Empty icon={<IconTargetArrow size={36} stroke={1.5} aria-hidden />} title="No fleet yet">
            <p>A fleet is a file that says which agents run which versions. It can be kept in a repository: applying the same file again changes nothing.</p>
            <Button renderRoot={(props) => <Link {...props} to="/fleets/-new" />}>Create the first one</Button>
            <p>The command line applies the same file:</p>
            <CopyBlock label="Commands that create a fleet" text={"muster fleets example > fleet.yaml\nmuster apply -f fleet.yaml"} />
          </Empty>
        ) : null}
        {list.data && total === 0 && labels ? <Empty title="No fleet has these labels" /> : null}
        {items.length > 0 ? (
          <div className={classes.scroll} tabIndex={0} role="region" aria-label="Fleets">
            <Table fz="sm" verticalSpacing={8} horizontalSpacing="md" className={classes.table}>
              <Table.Thead>
                <Table.Tr>{["Name", "Ready", "Agents", "Versions", "Hash", "Rollout", "Conditions", "Created"].map((h) => <Table.Th key={h} scope="col">{h}</Table.Th>)}</Table.Tr>
              </Table.Thead>
              <Table.Tbody>{items.map((f) => <Row key={f.metadata.name} fleet={f} />)}</Table.Tbody>
            </Table>
          </div>
        ) : null}
        {pages > 1 || page > 1 ? (
          <div className={board.foot}>
            <span>Page {page} of {pages}, {total.toLocaleString()} fleets</span>
            <Group gap="xs">
              <ReasonButton size="compact-xs" variant="default" reason={page <= 1 ? "This is the first page." : null} onClick={() => void navigate({ search: { labels, page: page > 2 ? page - 1 : undefined } })}>Previous</ReasonButton>
              <ReasonButton size="compact-xs" variant="default" reason={page >= pages ? "This is the last page." : null} onClick={() => void navigate({ search: { labels, page: page + 1 } })}>Next</ReasonButton>
            </Group>
          </div>
        ) : null}
      </Panel>
    </>
  );
}

function LabelFilter({ labels, onFilter }: { labels: string; onFilter: (labels: string) => void }) {
  const [typed, setTyped] = useState(labels);
  return (
    <form role="search" aria-label="Filter fleets" onSubmit={(e) => { e.preventDefault(); onFilter(typed.trim()); }}>
      <TextInput mb="sm" w={300} maw="100%" size="xs" aria-label="Labels" placeholder="Labels: team=web,stage=prod" leftSection={<IconSearch size={14} aria-hidden />} value={typed} onChange={(e) => setTyped(e.currentTarget.value)} />
    </form>
  );
}

function Row({ fleet: f }: { fleet: Fleet }) {
  const { name } = f.metadata;
  const { requestedRolloutHash: hash, rollout: r, agents = 0 } = f.status ?? {};
  return (
    <Table.Tr>
      <Table.Th scope="row" fw={600}><TextLink to="/fleets/$name" params={{ name }} inherit>{name}</TextLink></Table.Th>
      <Table.Td><ReadyBadge fleet={f} /></Table.Td>
      <Table.Td>{agents.toLocaleString()}</Table.Td>
      <Table.Td>
        {partsOf(f).map((p) => (
          <div key={p.part}>
            {p.part} {p.versions.length === 0 ? <span className={classes.sub}>not counted yet</span> : (
              <ul className={`${classes.inline} ${classes.versions}`}>{p.versions.map((v) => <li key={v.version}>{v.version ? <span className="mono">{v.version}</span> : "not installed"} <span className={classes.sub}>({v.agents.toLocaleString()})</span></li>)}</ul>
            )}
          </div>
        ))}
      </Table.Td>
      <Table.Td className={classes.nowrap}>{hash ? <span className="mono" title={hash}>{shortHash(hash)}</span> : <span className={classes.sub}>none yet</span>}</Table.Td>
      <Table.Td>{r ? <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: r.id }} inherit aria-label={`Rollout of ${name}: ${r.state}`}><RolloutBadge state={r.state} /></TextLink> : <span className={classes.sub}>none</span>}</Table.Td>
      <Table.Td><FleetBadges fleet={f} /></Table.Td>
      <Table.Td className={classes.nowrap}>{f.metadata.creationTimestamp ? <Ago at={f.metadata.creationTimestamp} /> : <Text span size="sm" c="dimmed">not known</Text>}</Table.Td>
    </Table.Tr>
  );
}
