import { Button, Group, Stack, Table, Text, TextInput } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { messageOf } from "~/api/client";
import { exposureQuery, freezesQuery, keys } from "~/api/queries";
import { createFreeze, deleteFreeze } from "~/api/rollouts";
import type { Freeze } from "~/api/types";
import { exposureText, freezeState, whyNotFreeze, type FreezeForm } from "~/util/guardRails";
import { exact } from "~/util/time";
import { Loading, LoadError, Panel } from "../Blocks";
import { Callout } from "../Callout";
import { ConfirmDialog } from "../ConfirmDialog";
import { Ago, useClock } from "../Now";
import { ReasonButton } from "../ReasonButton";
import { useToast } from "../Toasts";
import { WhyField } from "./CommandDialog";
import { ExposureDialog } from "./ExposureDialog";
import classes from "./Rollout.module.css";

/** The limits that apply to every rollout, whatever its plan. */
export function GuardRails() {
  return (
    <section aria-labelledby="guard-rails" className={classes.rails}>
      <h2 id="guard-rails" className={classes.section}>Guard rails</h2>
      <div className={classes.sides}><Exposure /><Freezes /></div>
    </section>
  );
}

function Exposure() {
  const rule = useQuery(exposureQuery);
  const [editing, setEditing] = useState(false);
  return (
    <Panel title="Exposure limit" aside={rule.data ? <Button size="compact-sm" variant="default" onClick={() => setEditing(true)}>Change…</Button> : null}>
      {rule.isError ? <LoadError what="The exposure limit" error={rule.error} onRetry={() => void rule.refetch()} /> : null}
      {rule.isPending ? <Loading rows={2} /> : null}
      {rule.data ? (
        <Stack gap={6}>
          <Text size="sm" fw={rule.data.enabled ? 600 : 400}>{exposureText(rule.data)}</Text>
          <Text size="xs" c="dimmed">It applies to every plan: a rollout that could exceed it is refused, and one that would exceed it is paused.{rule.data.updated_by ? <> Set by {rule.data.updated_by} <Ago at={rule.data.updated_at} />.</> : null}</Text>
        </Stack>
      ) : null}
      {editing && rule.data ? <ExposureDialog rule={rule.data} onClose={() => setEditing(false)} /> : null}
    </Panel>
  );
}

const blank: FreezeForm = { name: "", from: "", to: "" };

function Freezes() {
  const client = useQueryClient();
  const toast = useToast();
  const now = useClock();
  const list = useQuery(freezesQuery);
  const [form, setForm] = useState(blank);
  const [removing, setRemoving] = useState<Freeze | null>(null);
  const set = (change: Partial<FreezeForm>) => setForm((old) => ({ ...old, ...change }));
  const add = useMutation({
    mutationFn: () => createFreeze({ name: form.name.trim(), from: new Date(form.from).toISOString(), to: new Date(form.to).toISOString() }),
    onSuccess: () => {
      toast({ kind: "done", title: `The freeze “${form.name.trim()}” was added` });
      setForm(blank);
      void client.invalidateQueries({ queryKey: keys.freezes });
    },
  });
  const why = whyNotFreeze(form, now);
  return (
    <Panel title="Freeze calendar" flush>
      {list.isError ? <LoadError what="The freezes" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? <Loading rows={2} /> : null}
      {list.data?.length === 0 ? <div className={classes.hint}>No freeze is planned. During a freeze only emergency rollouts offer upgrades.</div> : null}
      {list.data && list.data.length > 0 ? (
        <div className={classes.scroll} tabIndex={0} role="region" aria-label="Freezes">
          <Table fz="sm" verticalSpacing={6} horizontalSpacing="md">
            <Table.Thead><Table.Tr>{["Freeze", "From", "To"].map((h) => <Table.Th key={h} scope="col">{h}</Table.Th>)}<Table.Th scope="col"><span className="sr-only">Actions</span></Table.Th></Table.Tr></Table.Thead>
            <Table.Tbody>
              {list.data.map((f) => (
                <Table.Tr key={f.id}>
                  <Table.Th scope="row" fw={600} className={classes.cell}>{f.name}<div className={classes.sub}>{freezeState(f, now) === "now" ? "in force now, " : freezeState(f, now) === "over" ? "over, " : ""}by {f.created_by}</div></Table.Th>
                  <Table.Td>{exact(f.from)}</Table.Td>
                  <Table.Td>{exact(f.to)}</Table.Td>
                  <Table.Td className={classes.end}><Button size="compact-xs" variant="subtle" color="gray" aria-label={`Remove ${f.name}`} onClick={() => setRemoving(f)}>Remove…</Button></Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </div>
      ) : null}
      <form
        style={{ padding: "12px 16px" }}
        onSubmit={(e) => {
          e.preventDefault();
          if (!why && !add.isPending) add.mutate();
        }}
      >
        <Group align="flex-end" gap="sm">
          <TextInput size="xs" label="Freeze" placeholder="Quarter end" value={form.name} onChange={(e) => set({ name: e.currentTarget.value })} style={{ flex: "1 1 100%" }} />
          <TextInput size="xs" type="datetime-local" label="From" style={{ flex: "1 1 150px" }} value={form.from} onChange={(e) => set({ from: e.currentTarget.value })} />
          <TextInput size="xs" type="datetime-local" label="To" style={{ flex: "1 1 150px" }} value={form.to} onChange={(e) => set({ to: e.currentTarget.value })} />
          <ReasonButton size="xs" type="submit" variant="default" loading={add.isPending} reason={why}>Add freeze</ReasonButton>
        </Group>
        {add.isError ? <Callout kind="error">{messageOf(add.error)}</Callout> : null}
      </form>
      {removing ? <RemoveFreeze freeze={removing} onClose={() => setRemoving(null)} /> : null}
    </Panel>
  );
}

function RemoveFreeze({ freeze: f, onClose }: { freeze: Freeze; onClose: () => void }) {
  const client = useQueryClient();
  const [why, setWhy] = useState("");
  const now = useClock();
  const remove = useMutation({
    mutationFn: () => deleteFreeze(f.id, why.trim()),
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: keys.freezes });
      onClose();
    },
  });
  return (
    <ConfirmDialog title={`Remove the freeze “${f.name}”?`} confirm="Remove freeze" busy={remove.isPending} error={remove.error} onConfirm={() => remove.mutate()} onClose={onClose}>
      <Stack gap="sm">
        <span>{freezeState(f, now) === "now" ? "It is in force: rollouts that wait for its end continue at once." : "Rollouts no longer wait for it."}</span>
        <WhyField value={why} onChange={setWhy} />
      </Stack>
    </ConfirmDialog>
  );
}
