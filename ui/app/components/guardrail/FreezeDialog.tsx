/** Add or change a freeze. */
import { Stack, TextInput } from "@mantine/core";
import { useState } from "react";
import { changeFreeze, createFreeze } from "~/api/guardRails";
import { keys } from "~/api/queries";
import type { Freeze } from "~/api/types";
import { Dialog } from "~/components/base/Dialog";
import { useClock } from "~/components/base/Now";
import { useChange } from "~/hooks/useChange";
import classes from "~/pages/Admin.module.css";
import { type FreezeForm, localField, whyNotFreeze } from "~/util/guardrail/guardRails";
import { minuteWithZone } from "~/util/time";

export function FreezeDialog({ freeze, onClose }: { freeze?: Freeze; onClose: () => void }) {
  const now = useClock();
  const [form, setForm] = useState<FreezeForm>({ name: freeze?.name ?? "", from: localField(freeze?.from), to: localField(freeze?.to) });
  const set = (change: Partial<FreezeForm>) => setForm((old) => ({ ...old, ...change }));
  const name = form.name.trim();
  const save = useChange({
    run: (why: string) => {
      const times = { name, from: new Date(form.from).toISOString(), to: new Date(form.to).toISOString() };
      return freeze ? changeFreeze(freeze.id, times, why) : createFreeze(times, why);
    },
    done: freeze ? `The freeze ${name} is changed` : `The freeze ${name} is added`,
    stale: [keys.freezes, keys.rollouts, keys.trails],
    after: onClose,
  });
  const zoned = (local: string) =>
    Number.isNaN(Date.parse(local)) ? `In ${Intl.DateTimeFormat().resolvedOptions().timeZone}` : minuteWithZone(new Date(local).toISOString());
  return (
    <Dialog
      title={freeze ? `Change the freeze ${freeze.name}?` : "Add a freeze?"}
      confirm={freeze ? "Change freeze" : "Add freeze"}
      why="optional"
      reason={whyNotFreeze(form, now)}
      busy={save.isPending}
      error={save.error}
      onConfirm={(why) => save.mutate(why)}
      onClose={onClose}
    >
      <Stack gap="sm">
        <TextInput label="Name" placeholder="Quarter end" data-autofocus value={form.name} onChange={(e) => set({ name: e.currentTarget.value })} />
        <div className={classes.fields}>
          <TextInput
            type="datetime-local"
            label="From"
            inputWrapperOrder={["label", "input", "description"]}
            description={zoned(form.from)}
            value={form.from}
            onChange={(e) => set({ from: e.currentTarget.value })}
          />
          <TextInput
            type="datetime-local"
            label="To"
            inputWrapperOrder={["label", "input", "description"]}
            description={zoned(form.to)}
            value={form.to}
            onChange={(e) => set({ to: e.currentTarget.value })}
          />
        </div>
      </Stack>
    </Dialog>
  );
}
