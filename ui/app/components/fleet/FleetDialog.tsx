import { Stack } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { changeSpec, deleteFleet, resumeFleet } from "~/api/fleets";
import { keys } from "~/api/queries";
import type { Fleet } from "~/api/types";
import { fleetCommandText, managedBy, whyNotFleet, type FleetCommand } from "~/util/fleet";
import { Callout } from "../Callout";
import { ConfirmDialog } from "../ConfirmDialog";
import { WhyField } from "../rollout/CommandDialog";
import { useToast } from "../Toasts";
import { TypedName } from "../TypedName";

interface Props {
  fleet: Fleet;
  command: FleetCommand;
  onDone: () => void;
  onClose: () => void;
}

function give(command: FleetCommand, f: Fleet, why: string): Promise<Fleet> {
  const { name } = f.metadata;
  switch (command) {
    case "pause":
      return changeSpec(name, { paused: true }, why);
    case "unpause":
      return changeSpec(name, { paused: undefined }, why);
    case "promote":
      return changeSpec(name, { forcePromote: f.status?.requestedRolloutHash }, why);
    case "resume":
      return resumeFleet(name, why);
    case "delete":
      return deleteFleet(name, why);
  }
}

export function FleetDialog({ fleet: f, command, onDone, onClose }: Props) {
  const client = useQueryClient();
  const toast = useToast();
  const [asked] = useState(f); // the hash that the operator reads is the one that is sent
  const [why, setWhy] = useState("");
  const [typed, setTyped] = useState("");
  const text = fleetCommandText(command, asked);
  const tool = managedBy(f);
  const run = useMutation({
    mutationFn: () => give(command, asked, why.trim()),
    onSuccess: (fresh) => {
      toast({ kind: "done", title: text.done });
      if (command !== "delete") client.setQueryData(keys.fleet(f.metadata.name), fresh);
      onDone();
      onClose();
      void client.invalidateQueries({ queryKey: keys.fleets });
    },
  });
  const { name } = f.metadata;
  const changed = command === "promote" && f.status?.requestedRolloutHash !== asked.status?.requestedRolloutHash;
  return (
    <ConfirmDialog
      title={text.title}
      confirm={text.confirm}
      harmless={text.harmless}
      keep="Dismiss"
      // The state may change while the dialog is open.
      reason={changed ? "Another hash is being rolled out now: close this and look again." : (whyNotFleet(command, f) ?? (text.typed && typed.trim() !== name ? `Type ${name} to continue.` : null))}
      busy={run.isPending}
      error={run.error}
      onConfirm={() => run.mutate()}
      onClose={onClose}
    >
      <Stack gap="sm">
        <span>{text.text}</span>
        {tool && command !== "resume" ? <Callout kind="warning">{tool} manages this fleet and will undo what is changed here. Change it in its repository instead.</Callout> : null}
        <WhyField value={why} onChange={setWhy} />
        {text.typed ? <TypedName name={name} value={typed} onChange={setTyped} /> : null}
      </Stack>
    </ConfirmDialog>
  );
}
