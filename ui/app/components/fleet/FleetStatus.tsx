import { Group, Table, Text } from "@mantine/core";
import type { Fleet } from "~/api/types";
import { CONDITION_TYPES, conditionOf, partsOf } from "~/util/fleet";
import { percent } from "~/util/rolloutCounts";
import { plural, sentence } from "~/util/words";
import tables from "~/pages/Tables.module.css";
import { Empty, Panel } from "../Blocks";
import { Ago } from "../Now";
import { RolloutBadge } from "../rollout/RolloutBadge";
import board from "../rollout/Rollout.module.css";
import { TextLink } from "../TextLink";
import { StatusOf } from "./FleetBadges";
import classes from "./Fleet.module.css";

export function Conditions({ fleet: f }: { fleet: Fleet }) {
  const all = CONDITION_TYPES.flatMap((t) => conditionOf(f, t) ?? []);
  return (
    <Panel title="Conditions" flush>
      {all.length === 0 ? <Empty title="None yet">The server sets them once it has looked at the fleet.</Empty> : (
        <div className={tables.scroll} tabIndex={0} role="region" aria-label="Conditions">
          <Table fz="sm" verticalSpacing={8} horizontalSpacing="md" className={tables.table}>
            <Table.Thead><Table.Tr>{["Condition", "Holds", "Reason", "Message", "Since"].map((h) => <Table.Th key={h} scope="col">{h}</Table.Th>)}</Table.Tr></Table.Thead>
            <Table.Tbody>
              {all.map((c) => (
                <Table.Tr key={c.type}>
                  <Table.Th scope="row" fw={600}>{c.type}</Table.Th>
                  <Table.Td><StatusOf condition={c} /></Table.Td>
                  <Table.Td><span className="mono">{c.reason}</span></Table.Td>
                  <Table.Td className={classes.message}>{sentence(c.message)}</Table.Td>
                  <Table.Td className={tables.nowrap}><Ago at={c.lastTransitionTime} /></Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </div>
      )}
    </Panel>
  );
}

/** How many agents run which version of each part. */
export function Versions({ fleet: f }: { fleet: Fleet }) {
  const parts = partsOf(f);
  return (
    <Panel title="Versions" aside={<span className={board.note}>{plural(f.status?.agents ?? 0, "agent")}</span>}>
      {parts.map((p) => (
        <div key={p.part} className={classes.part}>
          <div className={classes.partHead}>
            <span><b>{p.part}</b> to <span className="mono">{p.wants}</span></span>
            {p.there !== undefined && p.agents > 0 ? <span>{p.there.toLocaleString()} of {p.agents.toLocaleString()} run it, {percent(Math.floor((p.there * 1000) / p.agents) / 10)}</span> : null}
          </div>
          {p.there !== undefined && p.agents > 0 ? <div className={board.gauge} aria-hidden><span style={{ width: `${(100 * p.there) / p.agents}%` }} /></div> : null}
          <ul className={classes.versions} aria-label={`Versions of ${p.part}`}>
            {p.versions.map((v) => <li key={v.version}><b className="mono">{v.version || "not installed"}</b> on {plural(v.agents, "agent")}</li>)}
            {p.versions.length === 0 ? <li>not counted yet</li> : null}
          </ul>
        </div>
      ))}
    </Panel>
  );
}

export function LastRollout({ fleet: f }: { fleet: Fleet }) {
  const r = f.status?.rollout;
  return (
    <Panel title="Rollout">
      {!r ? <Text size="sm" c="dimmed">None has been started for it yet.</Text> : (
        <>
          <Group gap="xs">
            <RolloutBadge state={r.state} />
            <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: r.id }} size="sm" underline="always">{r.component || "Agents"}{r.version ? <> to <span className="mono">{r.version}</span></> : null}</TextLink>
          </Group>
          {r.waiting ? <Text size="sm" mt={6}>{sentence(r.waiting)}</Text> : null}
          {r.number ? <Text size="xs" c="dimmed" mt={6}>Number {r.number} after the first: it brings agents that joined later, came back or ran something else to the same hash.</Text> : null}
        </>
      )}
    </Panel>
  );
}
