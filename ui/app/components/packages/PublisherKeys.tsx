/** The OpenPGP keys whose packages of Elastic's the server accepts. */
import { Button, Stack, Textarea, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { addPublisherKey, removePublisherKey } from "~/api/packages";
import { keys, publisherKeysQuery } from "~/api/queries";
import type { PublisherKey } from "~/api/types";
import { CopyBlock } from "~/components/base/CopyBlock";
import { type Column, DataTable } from "~/components/base/DataTable";
import { Dialog } from "~/components/base/Dialog";
import { Empty, LoadError, Loading, Section } from "~/components/base/Page";
import { RowButton } from "~/components/base/RowButton";
import { When } from "~/components/base/Time";
import { useChange } from "~/hooks/useChange";
import classes from "~/pages/Admin.module.css";

const STALE = [keys.publisherKeys, keys.trails];

export function PublisherKeys() {
  const list = useQuery(publisherKeysQuery);
  const [adding, setAdding] = useState(false);
  const [removing, setRemoving] = useState<PublisherKey | null>(null);
  const columns: Column<PublisherKey>[] = [
    { id: "name", header: "Name", cell: (k) => <strong>{k.name || "unnamed"}</strong> },
    { id: "id", header: "Fingerprint", nowrap: true, cell: (k) => <span className="mono">{k.id}</span> },
    {
      id: "added",
      header: "Added",
      nowrap: true,
      wide: true,
      cell: (k) => (
        <>
          <When at={k.added_at} />
          {k.added_by ? <span className={classes.muted}> by {k.added_by}</span> : null}
        </>
      ),
    },
    {
      id: "act",
      header: "Actions",
      quiet: true,
      align: "end",
      cell: (k) => (
        <RowButton danger label={`Remove ${k.name || k.id}`} onClick={() => setRemoving(k)}>
          Remove…
        </RowButton>
      ),
    },
  ];
  return (
    <Section
      title="Publisher keys"
      plain
      flush
      aside={
        <Button size="compact-sm" variant="default" onClick={() => setAdding(true)}>
          Add key…
        </Button>
      }
    >
      <div className={classes.tight}>
        <p className={classes.note}>
          The server accepts packages of Elastic's that one of these OpenPGP keys has signed. Elastic Agents get the keys from the server.
        </p>
        {list.isError ? <LoadError what="The publisher keys" error={list.error} onRetry={() => void list.refetch()} /> : null}
        {list.isPending ? <Loading rows={2} /> : null}
        {list.data?.length === 0 ? (
          <Empty title="There is no publisher key">
            <p>Muster's packages need none: the published root decides. For Elastic's, add theirs.</p>
            <CopyBlock label="Command that adds a publisher key" text="muster package trust GPG-KEY-elastic-agent --name Elastic" />
          </Empty>
        ) : null}
        {list.data && list.data.length > 0 ? <DataTable label="Publisher keys" columns={columns} rows={list.data} rowId={(k) => k.id} /> : null}
      </div>
      {adding ? <AddDialog onClose={() => setAdding(false)} /> : null}
      {removing ? <RemoveDialog publisher={removing} onClose={() => setRemoving(null)} /> : null}
    </Section>
  );
}

function AddDialog({ onClose }: { onClose: () => void }) {
  const [key, setKey] = useState("");
  const [name, setName] = useState("");
  const add = useChange({
    run: (why: string) => addPublisherKey(key.trim(), name.trim(), why),
    done: "The server accepts packages signed by this key",
    stale: STALE,
    after: onClose,
  });
  return (
    <Dialog
      title="Accept packages signed by another key?"
      confirm="Add key"
      why="optional"
      reason={key.trim() === "" ? "Paste the public key first." : null}
      busy={add.isPending}
      error={add.error}
      onConfirm={(why) => add.mutate(why)}
      onClose={onClose}
    >
      <Stack gap="sm">
        <Textarea
          className={classes.code}
          label="Public key"
          description="An armored OpenPGP key"
          autosize
          minRows={2}
          maxRows={8}
          spellCheck={false}
          data-autofocus
          value={key}
          onChange={(e) => setKey(e.currentTarget.value)}
        />
        <TextInput label="Name (optional)" value={name} onChange={(e) => setName(e.currentTarget.value)} />
      </Stack>
    </Dialog>
  );
}

function RemoveDialog({ publisher: k, onClose }: { publisher: PublisherKey; onClose: () => void }) {
  const remove = useChange({ run: (why: string) => removePublisherKey(k.id, why), done: `The key ${k.name || k.id} is removed`, stale: STALE, after: onClose });
  return (
    <Dialog
      title={`Accept no more packages signed by ${k.name || k.id}?`}
      confirm="Remove key"
      danger
      typed={k.id}
      why="optional"
      busy={remove.isPending}
      error={remove.error}
      onConfirm={(why) => remove.mutate(why)}
      onClose={onClose}
    >
      <p>Published packages stay.</p>
    </Dialog>
  );
}
