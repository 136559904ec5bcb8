/** The calendar of freezes. */
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { deleteFreeze } from "~/api/guardRails";
import { freezesQuery, keys } from "~/api/queries";
import type { Freeze } from "~/api/types";
import { Badge } from "~/components/base/Badge";
import { CopyBlock } from "~/components/base/CopyBlock";
import { type Column, DataTable } from "~/components/base/DataTable";
import { Dialog } from "~/components/base/Dialog";
import { useClock } from "~/components/base/Now";
import { Empty, LoadError, Loading, Section } from "~/components/base/Page";
import { RowButton } from "~/components/base/RowButton";
import { Minute } from "~/components/base/Time";
import { useChange } from "~/hooks/useChange";
import classes from "~/pages/Admin.module.css";
import { freezeOrder, freezeState, freezeTime } from "~/util/guardrail/guardRails";
import { FreezeDialog } from "./FreezeDialog";

const words = { now: "In force", coming: "Planned", over: "Ended" } as const;
const tones = { now: "wait", coming: "move", over: "away" } as const;

/** The page's primary button adds a freeze, so it decides when the dialog is open. */
export function Freezes({ adding, onAdded }: { adding: boolean; onAdded: () => void }) {
  const list = useQuery(freezesQuery);
  const now = useClock();
  const [changing, setChanging] = useState<Freeze | null>(null);
  const [removing, setRemoving] = useState<Freeze | null>(null);
  const rows = useMemo(() => freezeOrder(list.data ?? [], now), [list.data, now]);
  const columns: Column<Freeze>[] = [
    { id: "name", header: "Freeze", nowrap: true, cell: (f) => <strong>{f.name}</strong> },
    {
      id: "state",
      header: "State",
      nowrap: true,
      cell: (f) => {
        const s = freezeState(f, now);
        return <Badge tone={tones[s]}>{words[s]}</Badge>;
      },
    },
    { id: "when", header: "Remaining", quiet: true, nowrap: true, wide: true, cell: (f) => freezeTime(f, now) },
    { id: "from", header: "From", wide: true, cell: (f) => <Minute at={f.from} /> },
    { id: "to", header: "To", wide: true, cell: (f) => <Minute at={f.to} /> },
    { id: "by", header: "By", nowrap: true, wide: true, cell: (f) => f.created_by },
    {
      id: "act",
      header: "Actions",
      quiet: true,
      align: "end",
      nowrap: true,
      cell: (f) => (
        <span className={classes.actions}>
          <RowButton label={`Change ${f.name}`} onClick={() => setChanging(f)}>
            Change…
          </RowButton>
          <RowButton danger label={`Remove ${f.name}`} onClick={() => setRemoving(f)}>
            Remove…
          </RowButton>
        </span>
      ),
    },
  ];
  return (
    <Section title="Freezes" plain flush>
      <div className={classes.tight}>
        <p className={classes.note}>
          During a freeze only emergency rollouts offer upgrades. Running rollouts wait for its end, and orders need a reason to override it.
        </p>
        {list.isError ? <LoadError what="The freezes" error={list.error} onRetry={() => void list.refetch()} /> : null}
        {list.isPending ? <Loading rows={2} /> : null}
        {list.data?.length === 0 ? (
          <Empty title="No freeze is planned">
            <CopyBlock label="Command that adds a freeze" text={'muster freezes add "Quarter end" --from 2026-12-20T00:00:00Z --to 2027-01-04T06:00:00Z'} />
          </Empty>
        ) : null}
        {rows.length > 0 ? <DataTable label="Freezes" columns={columns} rows={rows} rowId={(f) => f.id} /> : null}
      </div>
      {adding ? <FreezeDialog onClose={onAdded} /> : null}
      {changing ? <FreezeDialog freeze={changing} onClose={() => setChanging(null)} /> : null}
      {removing ? <RemoveFreeze freeze={removing} onClose={() => setRemoving(null)} /> : null}
    </Section>
  );
}

function RemoveFreeze({ freeze: f, onClose }: { freeze: Freeze; onClose: () => void }) {
  const now = useClock();
  const remove = useChange({
    run: (why: string) => deleteFreeze(f.id, why),
    done: `The freeze ${f.name} is removed`,
    stale: [keys.freezes, keys.rollouts, keys.trails],
    after: onClose,
  });
  return (
    <Dialog
      title={`Remove the freeze ${f.name}?`}
      confirm="Remove freeze"
      danger
      why="optional"
      busy={remove.isPending}
      error={remove.error}
      onConfirm={(why) => remove.mutate(why)}
      onClose={onClose}
    >
      <p>{freezeState(f, now) === "now" ? "It is in force: rollouts that wait for its end continue at once." : "Rollouts no longer wait for it."}</p>
    </Dialog>
  );
}
