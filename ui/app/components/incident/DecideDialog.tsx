/** Asks before incidents are acknowledged or resolved, with the reason that others read. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { decide } from "~/api/incidents";
import { keys } from "~/api/queries";
import type { Incident } from "~/api/types";
import { Dialog } from "~/components/base/Dialog";
import { type IncidentCommand, incidentCommand, incidentTitle } from "~/util/incident/incident";
import { plural } from "~/util/words";

interface Props {
  what: IncidentCommand;
  incidents: readonly Incident[];
  onClose: () => void;
  onDone: () => void;
}

export function DecideDialog({ what, incidents, onClose, onDone }: Props) {
  const client = useQueryClient();
  const one = incidents.length === 1 ? incidents[0] : undefined;
  const these = one ? "the incident" : plural(incidents.length, "incident");
  const verb = incidentCommand[what];
  const run = useMutation({
    mutationFn: (why: string) =>
      decide(
        what,
        incidents.map((i) => i.id),
        why,
      ),
    onSuccess: () => {
      onDone();
      onClose();
    },
    // Some may have been decided before one was refused.
    onSettled: () => {
      void client.invalidateQueries({ queryKey: keys.incidents });
      void client.invalidateQueries({ queryKey: keys.attention });
    },
  });
  return (
    <Dialog
      title={`${verb} ${these}?`}
      confirm={`${verb} ${one ? "incident" : these}`}
      why="optional"
      busy={run.isPending}
      error={run.error}
      onConfirm={run.mutate}
      onClose={onClose}
    >
      {one ? (
        <p>
          <b>{incidentTitle(one)}</b>
        </p>
      ) : null}
      <p>{what === "ack" ? "Others see that you work on it." : "If the same problem occurs again, the incident opens again."}</p>
    </Dialog>
  );
}
