import { Button, Stack, Table } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { call } from "~/api/client";
import { keys, serversQuery } from "~/api/queries";
import type { KnownServer } from "~/api/types";
import { Loading, LoadError, PageHead, Panel } from "~/components/Blocks";
import { ConfirmDialog } from "~/components/ConfirmDialog";
import { Ago } from "~/components/Now";
import { WhyField } from "~/components/rollout/CommandDialog";
import { ServerRemarks } from "~/components/ServerRemarks";
import { useToast } from "~/components/Toasts";
import classes from "./Tables.module.css";

export function ServersPage() {
  const list = useQuery(serversQuery);
  const [leaving, setLeaving] = useState<KnownServer | null>(null);
  return (
    <>
      <PageHead title="Servers" hint="The servers of this installation. One that has been silent for 15 seconds is away, and leaves the list after a week." />
      <ServerRemarks />
      <Panel flush>
        {list.isError ? <LoadError what="The servers" error={list.error} onRetry={() => void list.refetch()} /> : null}
        {list.isPending ? <Loading rows={2} /> : null}
        {list.data ? (
          <div className={classes.scroll} tabIndex={0} role="region" aria-label="Servers">
            <Table fz="sm" verticalSpacing={8} horizontalSpacing="md" className={classes.table}>
              <Table.Thead>
                <Table.Tr>
                  {["Host", "State", "Version", "Started", "Agents", "Address", "Id"].map((h) => <Table.Th key={h} scope="col">{h}</Table.Th>)}
                  <Table.Th scope="col"><span className="sr-only">Actions</span></Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>{list.data.items.map((s) => <Row key={s.id} server={s} onForget={() => setLeaving(s)} />)}</Table.Tbody>
            </Table>
          </div>
        ) : null}
      </Panel>
      {leaving ? <ForgetDialog server={leaving} onClose={() => setLeaving(null)} /> : null}
    </>
  );
}

function Row({ server: s, onForget }: { server: KnownServer; onForget: () => void }) {
  return (
    <Table.Tr>
      <Table.Th scope="row" fw={600}>{s.host}</Table.Th>
      <Table.Td className={classes.nowrap}>
        {s.away ? <span className={classes.state}>Away, seen <Ago at={s.seen_at} /></span> : <span className={classes.state} data-active>Running</span>}
      </Table.Td>
      <Table.Td><span className="mono">{s.version}</span></Table.Td>
      <Table.Td className={classes.nowrap}><Ago at={s.started_at} /></Table.Td>
      <Table.Td>{s.away ? "–" : s.parked.toLocaleString()}</Table.Td>
      <Table.Td><span className="mono">{s.admin_url}</span></Table.Td>
      <Table.Td><span className="mono">{s.id}</span></Table.Td>
      <Table.Td className={classes.end}>
        {s.away ? <Button size="compact-xs" variant="subtle" color="gray" aria-label={`Forget ${s.host}`} onClick={onForget}>Forget…</Button> : null}
      </Table.Td>
    </Table.Tr>
  );
}

function ForgetDialog({ server: s, onClose }: { server: KnownServer; onClose: () => void }) {
  const client = useQueryClient();
  const toast = useToast();
  const [why, setWhy] = useState("");
  const forget = useMutation({
    mutationFn: () => call("delete", "/api/v1/servers/{serverId}", { path: { serverId: s.id }, query: { why: why.trim() || undefined } }),
    onSuccess: () => {
      toast({ kind: "done", title: `The server on ${s.host} is forgotten` });
      void client.invalidateQueries({ queryKey: keys.servers });
      onClose();
    },
  });
  return (
    <ConfirmDialog title={`Forget ${s.host}?`} confirm="Forget server" harmless busy={forget.isPending} error={forget.error} onConfirm={() => forget.mutate()} onClose={onClose}>
      <Stack gap="sm">
        <span>It leaves the list. If it starts again, it is listed again.</span>
        <WhyField value={why} onChange={setWhy} />
      </Stack>
    </ConfirmDialog>
  );
}
