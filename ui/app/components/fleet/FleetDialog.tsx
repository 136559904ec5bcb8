import { Stack } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { changeSpec, deleteFleet, resumeFleet } from "~/api/fleets";
import { keys } from "~/api/queries";
import type { Command, Fleet } from "~/api/types";
import { type FleetCommand, fleetCommandText, managedBy } from "~/util/fleet/fleet";
import { Callout } from "../base/Callout";
import { Dialog } from "../base/Dialog";
import { toast } from "../base/Toasts";

interface Props {
  fleet: Fleet;
  /** As the server answers it now: it may become impossible while the dialog is open. */
  command: Command;
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

export function FleetDialog({ fleet: f, command: { name: given, allowed, reason }, onDone, onClose }: Props) {
  const command = given as FleetCommand;
  const client = useQueryClient();
  const [asked] = useState(f); // the hash that the operator reads is the one that is sent
  const text = fleetCommandText(command, asked);
  const tool = managedBy(f);
  const run = useMutation({
    mutationFn: (why: string) => give(command, asked, why),
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
    <Dialog
      title={text.title}
      confirm={text.confirm}
      danger={!text.harmless}
      typed={text.typed ? name : undefined}
      why="optional"
      reason={changed ? "Another hash is being rolled out now: close this and look again." : allowed ? null : reason}
      busy={run.isPending}
      error={run.error}
      onConfirm={(why) => run.mutate(why)}
      onClose={onClose}
    >
      <Stack gap="sm">
        <span>{text.text}</span>
        {tool && command !== "resume" ? (
          <Callout kind="warning">{tool} manages this fleet and will undo what is changed here. Change it in its repository instead.</Callout>
        ) : null}
      </Stack>
    </Dialog>
  );
}
