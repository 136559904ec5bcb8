import { Button } from "@mantine/core";
import { IconRefresh } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { agentTotalQuery } from "~/api/agents";
import { groupPreviewQuery } from "~/api/queries";
import type { Command, GroupPreview, GroupStatus } from "~/api/types";
import { hostsOf, whyNotStartGroup } from "~/util/group/group";
import { typedFor } from "~/util/plan/planPreview";
import { shortHash } from "~/util/rollout/preview";
import { durationText } from "~/util/rollout/rolloutText";
import { plural } from "~/util/words";
import { Callout } from "../base/Callout";
import { type Column, DataTable } from "../base/DataTable";
import { LoadError, Loading, Section } from "../base/Page";
import { ReasonButton } from "../base/ReasonButton";
import classes from "./Group.module.css";
import { GroupDialog } from "./GroupDialog";

type Row = GroupPreview["members"][number];

const columns: Column<Row>[] = [
  { id: "name", header: "Member", cell: (m) => <b>{m.name}</b> },
  { id: "version", header: "Version", cell: (m) => <span className="mono">{m.version}</span> },
  { id: "hosts", header: "Hosts", align: "end", cell: (m) => m.targets.toLocaleString() },
  { id: "out", header: "Left out", align: "end", cell: (m) => m.skipped.toLocaleString() },
  { id: "offline", header: "Offline", align: "end", wide: true, cell: (m) => m.offline.toLocaleString() },
  { id: "batches", header: "Batches", align: "end", wide: true, cell: (m) => m.batches.toLocaleString() },
  { id: "about", header: "About", nowrap: true, cell: (m) => durationText(m.estimate) },
];

/** A draft's preview, with the button that starts exactly it. */
export function GroupDraft({ group: g, start }: { group: GroupStatus; start: Command }) {
  const preview = useQuery(groupPreviewQuery(g.id));
  const fleet = useQuery(agentTotalQuery(undefined));
  const [asked, setAsked] = useState(false);
  const p = preview.data;
  const warnings = p?.members.flatMap((m) => m.warnings.map((text) => `${m.name}: ${text}`)) ?? [];
  return (
    <Section
      title="Preview"
      plain
      aside={
        <span className={classes.buttons}>
          <Button variant="default" leftSection={<IconRefresh size={14} aria-hidden />} loading={preview.isFetching} onClick={() => void preview.refetch()}>
            Preview again
          </Button>
          <ReasonButton reason={preview.error ? "It cannot be previewed." : whyNotStartGroup(p)} onClick={() => setAsked(true)}>
            {p ? `Upgrade ${plural(hostsOf(p), "host")}…` : "Start…"}
          </ReasonButton>
        </span>
      }
    >
      {preview.isError ? <LoadError what="The preview" error={preview.error} onRetry={() => void preview.refetch()} /> : null}
      {preview.isPending ? <Loading rows={3} /> : null}
      {p ? (
        <>
          <DataTable label="Preview of the members" columns={columns} rows={p.members} rowId={(m) => m.name} busy={preview.isFetching} />
          <p className={classes.sub}>
            About {durationText(p.estimate)}, at least {durationText(p.at_least)}. Hash{" "}
            <span className="mono" title={p.hash}>
              {shortHash(p.hash)}…
            </span>
          </p>
          {warnings.length > 0 ? (
            <Callout kind="warning" title="Warnings">
              {warnings.map((text) => (
                <div key={text}>{text}</div>
              ))}
            </Callout>
          ) : null}
        </>
      ) : null}
      {asked && p ? <GroupDialog group={g} command={start} hash={p.hash} typed={typedFor(hostsOf(p), fleet.data)} onClose={() => setAsked(false)} /> : null}
    </Section>
  );
}
