/** Asks before an action is cancelled, and says what it changes for hosts. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { cancelAction } from "~/api/actions";
import { keys } from "~/api/queries";
import type { ActionStatus } from "~/api/types";
import { Dialog } from "~/components/base/Dialog";
import { toast } from "~/components/base/Toasts";
import { actionTitle, hostsOf } from "~/util/activity/action";
import { plural } from "~/util/words";

export function CancelDialog({ action: a, onClose }: { action: ActionStatus; onClose: () => void }) {
  const client = useQueryClient();
  const noun = a.type === "STAGE" ? "staging" : a.rollback ? "rollback" : "upgrade";
  const cancel = useMutation({
    mutationFn: (why: string) => cancelAction(a.actionId, why),
    onSuccess: () => {
      toast({ kind: "done", title: "Cancelled for hosts that have not installed the new version yet" });
      void client.invalidateQueries({ queryKey: keys.actions });
      void client.invalidateQueries({ queryKey: keys.agents });
      onClose();
    },
  });
  return (
    <Dialog
      title={`Cancel the ${noun}${a.version ? ` to ${a.version}` : ""}?`}
      confirm={`Cancel ${noun}`}
      danger
      why="optional"
      busy={cancel.isPending}
      error={cancel.error}
      onConfirm={cancel.mutate}
      onClose={onClose}
    >
      <p>
        “{actionTitle(a)}” is for {plural(hostsOf(a), "host")}. Hosts that have not begun stay on their version. A host that has begun stops if it has not
        installed the new version yet. Hosts that run the new version keep it.
      </p>
    </Dialog>
  );
}
