import { Checkbox, ScrollArea, Stack, Text } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { keys } from "~/api/queries";
import { driftOf, startRollout } from "~/api/rollouts";
import type { Drift, DriftItem, Preview, Rollout } from "~/api/types";
import { isOwned, takeOverOf, whyNotTakeOver } from "~/util/owned";
import { driftText, startText } from "~/util/preview";
import { plural, sentence } from "~/util/words";
import { Callout } from "../Callout";
import { ConfirmDialog } from "../ConfirmDialog";
import { TakeOver } from "../TakeOver";
import { useToast } from "../Toasts";
import { WhyField } from "./CommandDialog";
import classes from "./Rollout.module.css";

interface Props {
  rollout: Rollout;
  preview: Preview;
  onClose: () => void;
}

/** Starts exactly what was previewed. If the fleet has changed since, it shows how and asks once more. */
export function StartDialog({ rollout: r, preview: p, onClose }: Props) {
  const client = useQueryClient();
  const toast = useToast();
  const [why, setWhy] = useState("");
  const [owner, setOwner] = useState("");
  const [accept, setAccept] = useState(false);
  const start = useMutation({
    // Never with accept_drift, which would start with the fleet of that moment. Sending the hash of the difference that
    // was read accepts only that difference: if the fleet has changed again, the start is refused again.
    mutationFn: (hash: string) => startRollout({ id: r.id, hash, acceptDrift: false, why: why.trim(), takeOver: takeOverOf(owner) }),
    onSuccess: (started) => {
      toast({ kind: "done", title: `“${r.plan.name}” started on ${plural(started.counts.total, "agent")}` });
      client.setQueryData(keys.rollout(r.id), started);
      void client.invalidateQueries({ queryKey: keys.rollouts });
      onClose();
    },
    // The preview behind the dialog is outdated.
    onError: (error) => {
      setAccept(false);
      if (driftOf(error)) void client.invalidateQueries({ queryKey: keys.rolloutPreview(r.id) });
    },
  });
  const drift = driftOf(start.error);
  return (
    <ConfirmDialog
      title={`Start “${r.plan.name}”?`}
      confirm={isOwned(start.error) ? `Take over: ${startText(p)}` : drift ? `Start on the current fleet: ${plural(drift.targets, "agent")}` : startText(p)}
      harmless
      keep="Not yet"
      reason={drift && !accept ? "Accept the difference first." : whyNotTakeOver(start.error, owner)}
      busy={start.isPending}
      error={drift || isOwned(start.error) ? null : start.error}
      onConfirm={() => start.mutate(drift?.hash ?? p.hash)}
      onClose={onClose}
    >
      <Stack gap="sm">
        {drift ? <DriftView drift={drift.drift} accept={accept} onAccept={setAccept} /> : (
          <span>
            <b>{plural(p.targets.length, "agent")}</b> {p.targets.length === 1 ? "is" : "are"} upgraded in {plural(p.batches.length, "batch", "batches")}; {plural(p.skipped.length, "agent")} left out.
            It starts exactly as previewed: if the fleet has changed since, you are asked again.
          </span>
        )}
        <WhyField value={why} onChange={setWhy} />
        <TakeOver error={start.error} typed={owner} onType={setOwner} />
      </Stack>
    </ConfirmDialog>
  );
}

function DriftView({ drift, accept, onAccept }: { drift: Drift; accept: boolean; onAccept: (yes: boolean) => void }) {
  return (
    <Stack gap="xs">
      <Callout kind="warning" title={`The fleet has changed since the preview: ${driftText(drift)}`}>Nothing was started.</Callout>
      <ScrollArea.Autosize mah={220} type="auto" viewportProps={{ tabIndex: 0, "aria-label": "What differs" }}>
        <DriftList title="Added" items={drift.added} />
        <DriftList title="Removed" items={drift.removed} />
        <DriftList title="Changed" items={drift.changed} />
      </ScrollArea.Autosize>
      <Checkbox size="sm" label="I have read the difference and accept it" checked={accept} onChange={(e) => onAccept(e.currentTarget.checked)} />
    </Stack>
  );
}

/** A longer list is not read; the numbers above are complete. */
const LINES = 100;

function DriftList({ title, items }: { title: string; items: DriftItem[] }) {
  if (items.length === 0) return null;
  return (
    <div>
      <Text size="xs" fw={600} c="dimmed" mt={4}>{title} ({items.length.toLocaleString()})</Text>
      <ul className={classes.skipped} style={{ paddingLeft: 8 }}>
        {items.slice(0, LINES).map((i) => <li key={i.agent_id}><b>{i.hostname || i.agent_id}</b> <span>{sentence(i.text)}</span></li>)}
        {items.length > LINES ? <li><span>and {(items.length - LINES).toLocaleString()} more</span></li> : null}
      </ul>
    </div>
  );
}
