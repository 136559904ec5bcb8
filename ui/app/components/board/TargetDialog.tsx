import { useMutation, useQueryClient } from "@tanstack/react-query";
import { keys } from "~/api/queries";
import { retryTargets, skipTargets } from "~/api/rollouts";
import type { Rollout, Target } from "~/api/types";
import { Dialog } from "../base/Dialog";
import { toast } from "../base/Toasts";

export type TargetOrder = "retry" | "skip";

interface Props {
  rollout: Rollout;
  target: Target;
  order: TargetOrder;
  onClose: () => void;
}

/** The question before one host is retried or skipped. */
export function TargetDialog({ rollout: r, target: t, order, onClose }: Props) {
  const client = useQueryClient();
  const host = t.hostname || t.agent_id;
  const give = useMutation({
    mutationFn: (why: string) => (order === "retry" ? retryTargets : skipTargets)(r.id, [t.agent_id], why),
    onSuccess: () => {
      toast({ kind: "done", title: order === "retry" ? `Retrying ${host}` : `Skipped ${host}` });
      void client.invalidateQueries({ queryKey: keys.rollouts });
      onClose();
    },
  });
  return (
    <Dialog
      title={order === "retry" ? `Retry ${host}?` : `Skip ${host}?`}
      confirm={order === "retry" ? "Retry 1 host" : "Skip 1 host"}
      why="optional"
      busy={give.isPending}
      error={give.error}
      onConfirm={(why) => give.mutate(why)}
      onClose={onClose}
    >
      {order === "retry"
        ? `It gets ${t.to} again when its batch is due.`
        : t.state === "offered"
          ? `Its order is withdrawn if the host has not begun, and this rollout leaves it at ${t.from || "its version"}.`
          : "This rollout leaves it as it is, and does not count it any more."}
    </Dialog>
  );
}
