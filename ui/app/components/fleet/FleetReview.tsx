import { Stack, Table, Text } from "@mantine/core";
import { IconArrowRight } from "@tabler/icons-react";
import type { FleetDiff, FleetPreview } from "~/api/types";
import { startsText, tookText } from "~/util/fleet";
import { fleetText } from "~/util/fleetYaml";
import { shortHash } from "~/util/preview";
import { plural, sentence } from "~/util/words";
import tables from "~/pages/Tables.module.css";
import { Panel } from "../Blocks";
import { Callout } from "../Callout";
import { DiffView } from "./DiffView";
import classes from "./Fleet.module.css";

/** What saving a fleet would do: the difference of its text, and the rollout that would start. */
export function FleetReview({ diff: d }: { diff: FleetDiff }) {
  const starts = startsText(d);
  return (
    <Stack gap="md">
      <Panel title="Difference" aside={<Text size="xs" c="dimmed">{d.before ? plural(d.changed.length, "field") : "A new fleet"}</Text>} flush>
        <DiffView before={d.before ? fleetText(d.before) : ""} after={fleetText(d.after)} label="Difference of the text" />
        {d.before && d.changed.length === 0 ? <Text size="sm" p="md">Nothing differs from what is stored.</Text> : null}
      </Panel>
      <Panel title="What would happen">
        <Stack gap="sm">
          <Callout kind={d.startsRollout ? "warning" : "info"} title={starts.title}>
            <div>{starts.text}</div>
            {d.waitsFor ? <div>It waits: {sentence(d.waitsFor)}</div> : null}
          </Callout>
          <div className={classes.hashes}>
            <Text span size="sm" c="dimmed">Hash</Text>
            {d.hashBefore ? <span className="mono" title={d.hashBefore}>{shortHash(d.hashBefore)}…</span> : null}
            {d.hashBefore === d.hashAfter ? <Text span size="sm" c="dimmed">stays</Text> : (
              <>{d.hashBefore ? <IconArrowRight size={14} aria-label="becomes" /> : null}<span className="mono" title={d.hashAfter}>{shortHash(d.hashAfter)}…</span></>
            )}
          </div>
        </Stack>
      </Panel>
      {d.previews.length > 0 ? <Panel title="Its rollouts, in this order" flush><Previews previews={d.previews} /></Panel> : null}
    </Stack>
  );
}

function Previews({ previews }: { previews: FleetPreview[] }) {
  return (
    <div className={tables.scroll} tabIndex={0} role="region" aria-label="Preview of each part">
      <Table fz="sm" verticalSpacing={8} horizontalSpacing="md">
        <Table.Thead>
          <Table.Tr>{["Part", "Version", "Agents", "Left out", "Batches", "About"].map((h) => <Table.Th key={h} scope="col">{h}</Table.Th>)}</Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {previews.map((p) => (
            <Table.Tr key={p.part}>
              <Table.Th scope="row" fw={600}>{p.part}</Table.Th>
              <Table.Td><span className="mono">{p.version || "—"}</span></Table.Td>
              {p.error ? <Table.Td colSpan={4}>{sentence(p.error)}</Table.Td> : (
                <><Table.Td>{p.targets.toLocaleString()}</Table.Td><Table.Td>{p.skipped.toLocaleString()}</Table.Td><Table.Td>{p.batches.toLocaleString()}</Table.Td><Table.Td className={tables.nowrap}>{tookText(p) || "—"}</Table.Td></>
              )}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}
