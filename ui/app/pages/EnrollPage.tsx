import { Button, Table, Text } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { IconKey, IconPlus } from "@tabler/icons-react";
import { useState } from "react";
import { call } from "~/api/client";
import { enrollmentKeysQuery, keys } from "~/api/queries";
import type { EnrollmentKey } from "~/api/types";
import { AddAgentDialog, EnrollCommandDialog } from "~/components/AddAgentDialog";
import { Empty, Loading, LoadError, PageHead, Panel } from "~/components/Blocks";
import { ConfirmDialog } from "~/components/ConfirmDialog";
import { Ago, useClock } from "~/components/Now";
import { useToast } from "~/components/Toasts";
import { usePolicyName } from "~/hooks/useAgents";
import { keyState } from "~/util/keyState";
import classes from "./Tables.module.css";

export function EnrollPage() {
  const list = useQuery(enrollmentKeysQuery);
  const policyName = usePolicyName();
  const now = useClock();
  const [adding, setAdding] = useState(false);
  const [shown, setShown] = useState<EnrollmentKey | null>(null);
  const [revoking, setRevoking] = useState<EnrollmentKey | null>(null);
  const items = list.data?.items ?? [];
  return (
    <>
      <PageHead title="Enrollment" hint="Keys with which hosts enrol. A revoked key enrols no more hosts; agents enrolled with it stay.">
        <Button leftSection={<IconPlus size={16} aria-hidden />} onClick={() => setAdding(true)}>Add agent</Button>
      </PageHead>
      <Panel flush>
        {list.isError ? <LoadError what="The enrollment keys" error={list.error} onRetry={() => void list.refetch()} /> : null}
        {list.isPending ? <Loading rows={3} /> : null}
        {list.isSuccess && items.length === 0 ? (
          <Empty icon={<IconKey size={36} stroke={1.5} aria-hidden />} title="There is no enrollment key">
            <p>“Add agent” creates one and shows the command that uses it.</p>
          </Empty>
        ) : null}
        {items.length > 0 ? (
          <div className={classes.scroll} tabIndex={0} role="region" aria-label="Enrollment keys">
            <Table fz="sm" verticalSpacing={8} horizontalSpacing="md" className={classes.table}>
              <Table.Thead>
                <Table.Tr>
                  {["Name", "Policy", "State", "Created", "Expires", "Key id"].map((h) => <Table.Th key={h} scope="col">{h}</Table.Th>)}
                  <Table.Th scope="col"><span className="sr-only">Actions</span></Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {items.map((k) => {
                  const state = keyState(k, now);
                  return (
                    <Table.Tr key={k.id}>
                      <Table.Th scope="row" fw={600}>{k.name || <Text span size="sm" c="dimmed">unnamed</Text>}</Table.Th>
                      <Table.Td>{policyName(k.policy_id)}</Table.Td>
                      <Table.Td><span className={classes.state} data-active={state === "Active" || undefined}>{state}</span></Table.Td>
                      <Table.Td className={classes.nowrap}><Ago at={k.created_at} /></Table.Td>
                      <Table.Td className={classes.nowrap}>{k.expire_at ? <Ago at={k.expire_at} /> : "never"}</Table.Td>
                      <Table.Td><span className="mono">{k.id}</span></Table.Td>
                      <Table.Td className={classes.end}>
                        {state === "Active" && k.api_key ? (
                          <Button size="compact-xs" variant="subtle" color="gray" aria-label={`Show the command of ${k.name || k.id}`} onClick={() => setShown(k)}>Command…</Button>
                        ) : null}
                        {k.active ? (
                          <Button size="compact-xs" variant="subtle" color="gray" aria-label={`Revoke ${k.name || k.id}`} onClick={() => setRevoking(k)}>Revoke…</Button>
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
      {adding ? <AddAgentDialog onClose={() => setAdding(false)} /> : null}
      {shown?.api_key ? <EnrollCommandDialog enrollmentKey={shown} token={shown.api_key} onClose={() => setShown(null)} /> : null}
      {revoking ? <RevokeDialog enrollmentKey={revoking} onClose={() => setRevoking(null)} /> : null}
    </>
  );
}

function RevokeDialog({ enrollmentKey, onClose }: { enrollmentKey: EnrollmentKey; onClose: () => void }) {
  const client = useQueryClient();
  const toast = useToast();
  const revoke = useMutation({
    mutationFn: () => call("delete", "/api/fleet/enrollment_api_keys/{keyId}", { path: { keyId: enrollmentKey.id } }),
    onSuccess: () => {
      toast({ kind: "done", title: `The key ${enrollmentKey.name || enrollmentKey.id} is revoked` });
      void client.invalidateQueries({ queryKey: keys.enrollmentKeys });
      onClose();
    },
  });
  return (
    <ConfirmDialog title={`Revoke ${enrollmentKey.name || enrollmentKey.id}?`} confirm="Revoke key" busy={revoke.isPending} error={revoke.error} onConfirm={() => revoke.mutate()} onClose={onClose}>
      No host can enrol with it any more. Agents that are enrolled stay enrolled. This cannot be undone: create a new key instead.
    </ConfirmDialog>
  );
}
