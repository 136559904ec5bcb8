import { Stack, Table, Text } from "@mantine/core";
import type { Preview } from "~/api/types";
import { WATCH_TEXT } from "~/util/phase";
import { bytesOf, shortHash } from "~/util/preview";
import { percent } from "~/util/rolloutCounts";
import { durationText } from "~/util/rolloutText";
import { exact } from "~/util/time";
import { plural, sentence, size } from "~/util/words";
import { Facts, Panel } from "../Blocks";
import { Callout } from "../Callout";
import { CopyIcon } from "../CopyBlock";
import { BatchTag } from "./Batches";
import { Configs } from "./Configs";
import { ExposureGauge } from "./Gauges";
import { Skipped } from "./Skipped";
import classes from "./Rollout.module.css";

/** What a rollout would do. With pinned it is stored: it shows the hash, which a start sends, and the configuration files. */
export function PreviewPanel({ preview: p, pinned }: { preview: Preview; pinned?: boolean }) {
  return (
    <Stack gap="md">
      <Panel title="What would happen">
        <Stack gap="sm">
          <div role="status">
            <span className={classes.big}>{p.targets.length.toLocaleString()}</span>{" "}
            <Text span fw={600}>{p.targets.length === 1 ? "agent would be upgraded" : "agents would be upgraded"}</Text>
            <Text size="sm" c="dimmed">
              {plural(p.skipped.length, "agent")} left out{p.targets.length === 0 ? "" : " · "}{p.targets.length === 0 ? "" : p.offline > 0 ? `${p.offline.toLocaleString()} offline, which upgrade when they return` : "all online"}
            </Text>
          </div>
          {p.targets.length > 0 ? <Text size="sm" c="dimmed">{p.component ? `Hosts observe ${p.component} for a minute by default, and then report the new version.` : WATCH_TEXT}</Text> : null}
          {p.warnings.map((w) => <Callout key={w} kind="warning">{sentence(w)}</Callout>)}
          <Facts rows={[
            ...(p.staging && p.staging.load > 0 ? [["Staged first", `${plural(p.staging.load, "agent")} in about ${durationText(p.staging.estimate)}${p.staging.staged > 0 ? `, ${p.staging.staged.toLocaleString()} have it` : ""}`] as [string, React.ReactNode]] : []),
            ["Takes about", durationText(p.estimate)],
            ["Takes at least", durationText(p.at_least)],
            ["To download", p.sites.length > 1 ? `${size(bytesOf(p))} over ${plural(p.sites.length, "site")}` : size(bytesOf(p))],
            ["Previewed", exact(p.at)],
            ...(pinned ? [["Hash", <span key="h"><span className="mono">{shortHash(p.hash)}…</span> <CopyIcon text={p.hash} label="Copy the preview's hash" /></span>] as [string, React.ReactNode]] : []),
          ]} />
          {p.exposure ? <div className={classes.gauges}><ExposureGauge exposure={p.exposure} /></div> : null}
        </Stack>
      </Panel>
      {p.batches.length > 0 ? <Panel title="Batches and times" flush><Times preview={p} /></Panel> : null}
      {p.coverage && p.coverage.cells > 0 ? <Panel title="Canary coverage"><Cover preview={p} /></Panel> : null}
      {p.sites.length > 1 ? <Panel title="Bytes by site" flush><Sites preview={p} /></Panel> : null}
      {pinned ? <Configs preview={p} /> : null}
      <Skipped skipped={p.skipped} />
    </Stack>
  );
}

function Times({ preview: p }: { preview: Preview }) {
  const rings = p.batches.some((b) => b.ring); // ring 0 is shown only if there are others
  return (
    <div className={classes.scroll} tabIndex={0} role="region" aria-label="Batches with estimated times">
      <Table fz="sm" verticalSpacing={6} horizontalSpacing="md" className={`${classes.table} ${classes.narrow}`}>
        <Table.Thead>
          <Table.Tr>{["Batch", "Agents", "Starts about", "Ends about", "Fleet after"].map((h) => <Table.Th key={h} scope="col">{h}</Table.Th>)}</Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {p.batches.map((b) => (
            <Table.Tr key={b.index}>
              <Table.Th scope="row" fw={600} className={classes.nowrap}>{b.index + 1} <BatchTag kind={b.kind} ring={rings ? (b.ring ?? 0) : undefined} /></Table.Th>
              <Table.Td>{b.size.toLocaleString()}{b.offline > 0 ? <div className={classes.sub}>{b.offline.toLocaleString()} offline</div> : null}</Table.Td>
              <Table.Td><When at={b.start_at} /></Table.Td>
              <Table.Td><When at={b.end_at} /></Table.Td>
              <Table.Td>{percent(Math.round(b.share * 1000) / 10)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

function When({ at }: { at: string }) {
  const words = new Date(at).toLocaleString(undefined, { weekday: "short", hour: "2-digit", minute: "2-digit" });
  return <time dateTime={at} title={exact(at)}>{words}</time>;
}

function Cover({ preview }: { preview: Preview }) {
  const c = preview.coverage!;
  return (
    <Stack gap="xs">
      <Text size="sm">
        {c.covered.toLocaleString()} of {plural(c.cells, "combination")} of {c.over.join(" × ")}, {percent(Math.round(c.agents * 1000) / 10)} of the agents.
      </Text>
      {c.uncovered.length > 0 ? (
        <Facts rows={c.uncovered.map((u) => [plural(u.agents, "agent"), <span key={u.values.join()}>no canary for <span className="mono">{u.values.map((v) => v || "none").join(" · ")}</span></span>])} />
      ) : <Text size="sm" c="dimmed">Every combination has a canary.</Text>}
    </Stack>
  );
}

function Sites({ preview }: { preview: Preview }) {
  const sites = [...preview.sites].sort((a, b) => b.bytes - a.bytes);
  return (
    <div className={classes.scroll} tabIndex={0} role="region" aria-label="Bytes by site">
      <Table fz="sm" verticalSpacing={6} horizontalSpacing="md">
        <Table.Thead><Table.Tr>{["Site", "Agents", "To download"].map((h) => <Table.Th key={h} scope="col">{h}</Table.Th>)}</Table.Tr></Table.Thead>
        <Table.Tbody>
          {sites.map((s) => (
            <Table.Tr key={s.site}>
              <Table.Th scope="row" fw={500}>{s.site || "no site"}</Table.Th>
              <Table.Td>{s.agents.toLocaleString()}</Table.Td>
              <Table.Td>{size(s.bytes)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}
