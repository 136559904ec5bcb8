import { Button, Table } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { IconPlus } from "@tabler/icons-react";
import { useState } from "react";
import { call } from "~/api/client";
import { adminKeysQuery, keys, sessionQuery } from "~/api/queries";
import type { AdminKey } from "~/api/types";
import { AdminKeyDialog } from "~/components/AdminKeyDialog";
import { Loading, LoadError, PageHead, Panel } from "~/components/Blocks";
import { ConfirmDialog } from "~/components/ConfirmDialog";
import { Ago, useClock } from "~/components/Now";
import { useToast } from "~/components/Toasts";
import { keyState } from "~/util/keyState";
import classes from "./Tables.module.css";

type Dialog = { kind: "create" } | { kind: "rotate" | "revoke"; key: AdminKey };

export function AdminKeysPage() {
  const list = useQuery(adminKeysQuery);
  const session = useQuery(sessionQuery);
  const now = useClock();
  const [dialog, setDialog] = useState<Dialog | null>(null);
  const close = () => setDialog(null);
  const mine = session.data?.key_id;
  return (
    <>
      <PageHead title="Admin keys" hint="Keys with which people and pipelines use this server. A key's name stands beside everything that is done with it.">
        <Button leftSection={<IconPlus size={16} aria-hidden />} onClick={() => setDialog({ kind: "create" })}>Create key…</Button>
      </PageHead>
      <Panel flush>
        {list.isError ? <LoadError what="The admin keys" error={list.error} onRetry={() => void list.refetch()} /> : null}
        {list.isPending ? <Loading rows={3} /> : null}
        {list.data ? (
          <div className={classes.scroll} tabIndex={0} role="region" aria-label="Admin keys">
            <Table fz="sm" verticalSpacing={8} horizontalSpacing="md" className={classes.table}>
              <Table.Thead>
                <Table.Tr>
                  {["Name", "State", "Last used", "Expires", "Created", "Key id"].map((h) => <Table.Th key={h} scope="col">{h}</Table.Th>)}
                  <Table.Th scope="col"><span className="sr-only">Actions</span></Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {list.data.items.map((k) => {
                  const state = keyState(k, now);
                  return (
                    <Table.Tr key={k.id}>
                      <Table.Th scope="row" fw={600}>{k.name}{k.id === mine ? <span className={classes.sub}> (yours)</span> : null}</Table.Th>
                      <Table.Td><span className={classes.state} data-active={state === "Active" || undefined}>{state}</span></Table.Td>
                      <Table.Td className={classes.nowrap}><Ago at={k.last_used_at} /></Table.Td>
                      <Table.Td className={classes.nowrap}><Ago at={k.expire_at} /></Table.Td>
                      <Table.Td className={classes.nowrap}><Ago at={k.created_at} />{k.created_by ? <span className={classes.sub}> by {k.created_by}</span> : null}</Table.Td>
                      <Table.Td><span className="mono">{k.id}</span></Table.Td>
                      <Table.Td className={classes.end}>
                        {state === "Active" ? (
                          <>
                            <Button size="compact-xs" variant="subtle" color="gray" aria-label={`Rotate ${k.name}`} onClick={() => setDialog({ kind: "rotate", key: k })}>Rotate…</Button>
                            <Button size="compact-xs" variant="subtle" color="gray" aria-label={`Revoke ${k.name}`} onClick={() => setDialog({ kind: "revoke", key: k })}>Revoke…</Button>
                          </>
                        ) : null}
                      </Table.Td>
                    </Table.Tr>
                  );
                })}
              </Table.Tbody>
            </Table>
          </div>
        ) : null}
      </Panel>
      {dialog?.kind === "create" ? <AdminKeyDialog onClose={close} /> : null}
      {dialog?.kind === "rotate" ? <AdminKeyDialog rotated={dialog.key} mine={dialog.key.id === mine} onClose={close} /> : null}
      {dialog?.kind === "revoke" ? <RevokeDialog adminKey={dialog.key} mine={dialog.key.id === mine} onClose={close} /> : null}
    </>
  );
}

function RevokeDialog({ adminKey, mine, onClose }: { adminKey: AdminKey; mine: boolean; onClose: () => void }) {
  const client = useQueryClient();
  const toast = useToast();
  const revoke = useMutation({
    mutationFn: () => call("delete", "/api/v1/admin_keys/{keyId}", { path: { keyId: adminKey.id } }),
    onSuccess: () => {
      toast({ kind: "done", title: `The key ${adminKey.name} is revoked` });
      void client.invalidateQueries({ queryKey: keys.adminKeys });
      onClose();
    },
  });
  return (
    <ConfirmDialog title={`Revoke ${adminKey.name}?`} confirm="Revoke key" busy={revoke.isPending} error={revoke.error} onConfirm={() => revoke.mutate()} onClose={onClose}>
      Nobody can use it any more, and its sessions end{mine ? ", yours too" : ""}. This cannot be undone: create a new key instead.
    </ConfirmDialog>
  );
}
