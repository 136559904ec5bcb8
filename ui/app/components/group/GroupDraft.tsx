import { Button, Group as Row, Table, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconPlayerPlay, IconRefresh } from "@tabler/icons-react";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { groupPreviewQuery } from "~/api/queries";
import type { Group, GroupPreview } from "~/api/types";
import { previewText, whyNotStartGroup, type GroupCommand } from "~/util/group";
import { shortHash } from "~/util/preview";
import { durationText } from "~/util/rolloutText";
import { Loading, LoadError, Panel } from "../Blocks";
import { Callout } from "../Callout";
import { ReasonButton } from "../ReasonButton";
import tables from "~/pages/Tables.module.css";
import { GroupDialog } from "./GroupDialog";

/** A draft's preview, with the button that starts exactly it. */
export function GroupDraft({ group: g }: { group: Group }) {
  const preview = useQuery(groupPreviewQuery(g.id));
  const navigate = useNavigate();
  const [asked, setAsked] = useState<GroupCommand | null>(null);
  return (
    <>
      <Row gap="xs" mb="md">
        <ReasonButton leftSection={<IconPlayerPlay size={16} aria-hidden />} reason={preview.error ? "It cannot be previewed." : whyNotStartGroup(preview.data)} onClick={() => setAsked("start")}>
          {preview.data ? `Start on ${previewText(preview.data)}…` : "Start…"}
        </ReasonButton>
        <Button variant="default" leftSection={<IconRefresh size={16} aria-hidden />} loading={preview.isFetching} onClick={() => void preview.refetch()}>Preview again</Button>
        <Button variant="default" onClick={() => setAsked("delete")}>Delete draft…</Button>
      </Row>
      {preview.isError ? <LoadError what="The preview" error={preview.error} onRetry={() => void preview.refetch()} /> : null}
      {preview.isPending ? <Panel><Loading rows={3} /></Panel> : null}
      {preview.data ? <Members preview={preview.data} /> : null}
      {asked ? (
        <GroupDialog
          group={g} commands={[asked]} hash={preview.data?.hash} onClose={() => setAsked(null)}
          onDone={() => (asked === "delete" ? void navigate({ to: "/groups" }) : undefined)}
        />
      ) : null}
    </>
  );
}

function Members({ preview: p }: { preview: GroupPreview }) {
  const warnings = p.members.flatMap((m) => m.warnings.map((text) => `${m.name}: ${text}`));
  return (
    <Panel title="Preview" aside={<Text size="xs" c="dimmed">at least {durationText(p.at_least)}, about {durationText(p.estimate)} · hash <span className="mono">{shortHash(p.hash)}…</span></Text>} flush>
      <div className={tables.scroll} tabIndex={0} role="region" aria-label="Preview of the members">
        <Table fz="sm" verticalSpacing={8} horizontalSpacing="md" className={tables.table}>
          <Table.Thead>
            <Table.Tr>{["Member", "Version", "Agents", "Left out", "Offline", "Batches", "About"].map((h) => <Table.Th key={h} scope="col">{h}</Table.Th>)}</Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {p.members.map((m) => (
              <Table.Tr key={m.name}>
                <Table.Th scope="row" fw={600}>{m.name}</Table.Th><Table.Td><span className="mono">{m.version}</span></Table.Td><Table.Td>{m.targets.toLocaleString()}</Table.Td><Table.Td>{m.skipped.toLocaleString()}</Table.Td>
                <Table.Td>{m.offline.toLocaleString()}</Table.Td><Table.Td>{m.batches.toLocaleString()}</Table.Td><Table.Td>{durationText(m.estimate)}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </div>
      {warnings.length > 0 ? <div className={tables.below}><Callout kind="warning" title="Warnings">{warnings.map((text) => <div key={text}>{text}</div>)}</Callout></div> : null}
    </Panel>
  );
}
