/** Starts exactly what was previewed. If the fleet has changed since, it shows how and asks once more. */
import { Checkbox } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { agentTotalQuery } from "~/api/agents";
import { keys } from "~/api/queries";
import { driftOf, startRollout } from "~/api/rollouts";
import type { Drift, DriftItem, Preview, Rollout } from "~/api/types";
import { isOwned, takeOverOf, whyNotTakeOver } from "~/util/fleet/owned";
import { stopsAt, typedFor, willOf, wontOf } from "~/util/plan/planPreview";
import { driftText } from "~/util/rollout/preview";
import { plural, sentence } from "~/util/words";
import { Callout } from "../base/Callout";
import { Dialog } from "../base/Dialog";
import { toast } from "../base/Toasts";
import { TakeOver } from "../fleet/TakeOver";
import classes from "./Board.module.css";

interface Props {
  rollout: Rollout;
  preview: Preview;
  onClose: () => void;
}

export function StartDialog({ rollout: r, preview: p, onClose }: Props) {
  const client = useQueryClient();
  const [owner, setOwner] = useState("");
  const [accepted, setAccepted] = useState(false);
  const fleet = useQuery(agentTotalQuery(undefined));
  const start = useMutation({
    // Never with accept_drift, which would start with the fleet of that moment. Sending the hash of the difference that
    // was read accepts only that difference: if the fleet has changed again, the start is refused again.
    mutationFn: ({ hash, why }: { hash: string; why: string }) => startRollout({ id: r.id, hash, acceptDrift: false, why, takeOver: takeOverOf(owner) }),
    onSuccess: (started) => {
      toast({ kind: "done", title: `“${r.plan.name}” started on ${plural(started.counts.total, "host")}` });
      client.setQueryData(keys.rollout(r.id), started);
      void client.invalidateQueries({ queryKey: keys.rollouts });
      onClose();
    },
    // The preview behind the dialog is outdated.
    onError: (error) => {
      setAccepted(false);
      if (driftOf(error)) void client.invalidateQueries({ queryKey: keys.rolloutPreview(r.id) });
    },
  });
  const drift = driftOf(start.error);
  const owned = isOwned(start.error);
  const count = drift?.targets ?? willOf(p);
  const hosts = plural(count, "host");
  return (
    <Dialog
      title={`Start “${r.plan.name}” on ${hosts}?`}
      confirm={owned ? `Take over and upgrade ${hosts}` : `Upgrade ${hosts}`}
      typed={typedFor(count, fleet.data)}
      why="optional"
      reason={drift && !accepted ? "Accept the difference first." : whyNotTakeOver(start.error, owner)}
      busy={start.isPending}
      error={drift || owned ? null : start.error}
      onConfirm={(why) => start.mutate({ hash: drift?.hash ?? p.hash, why })}
      onClose={onClose}
    >
      <div className={classes.dialog}>
        {drift ? (
          <DriftView drift={drift.drift} accepted={accepted} onAccept={setAccepted} />
        ) : (
          <span>
            {hosts} {count === 1 ? "is" : "are"} upgraded in {plural(p.batches.length, "batch", "batches")}, {plural(wontOf(p), "host")} left out.{" "}
            {stopsAt(r.plan)} It starts exactly as previewed: if the hosts have changed since, you are asked again.
          </span>
        )}
        <TakeOver error={start.error} typed={owner} onType={setOwner} />
      </div>
    </Dialog>
  );
}

function DriftView({ drift, accepted, onAccept }: { drift: Drift; accepted: boolean; onAccept: (yes: boolean) => void }) {
  return (
    <>
      <Callout kind="warning" title={`The fleet has changed since the preview: ${driftText(drift)}`}>
        Nothing was started.
      </Callout>
      <div className={classes.drift} tabIndex={0} role="region" aria-label="What has changed">
        <DriftList title="Added" items={drift.added} />
        <DriftList title="Removed" items={drift.removed} />
        <DriftList title="Changed" items={drift.changed} />
      </div>
      <Checkbox size="sm" label="I have read the difference and accept it" checked={accepted} onChange={(e) => onAccept(e.currentTarget.checked)} />
    </>
  );
}

/** A longer list is not read; the numbers above are complete. */
const LINES = 100;

function DriftList({ title, items }: { title: string; items: DriftItem[] }) {
  if (items.length === 0) return null;
  return (
    <div>
      <strong>
        {title} ({items.length.toLocaleString()})
      </strong>
      <ul>
        {items.slice(0, LINES).map((i) => (
          <li key={i.agent_id}>
            {i.hostname || i.agent_id}: <span className={classes.faint}>{sentence(i.text)}</span>
          </li>
        ))}
        {items.length > LINES ? <li>and {(items.length - LINES).toLocaleString()} more</li> : null}
      </ul>
    </div>
  );
}
