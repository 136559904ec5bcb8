import { Stack } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { keys } from "~/api/queries";
import { retryTargets, skipTargets } from "~/api/rollouts";
import type { Rollout, Target } from "~/api/types";
import { ConfirmDialog } from "../ConfirmDialog";
import { useToast } from "../Toasts";
import { WhyField } from "./CommandDialog";

export type TargetCommand = "retry" | "skip";

export function TargetDialog({ rollout: r, target: t, what, onClose }: { rollout: Rollout; target: Target; what: TargetCommand; onClose: () => void }) {
  const client = useQueryClient();
  const toast = useToast();
  const [why, setWhy] = useState("");
  const host = t.hostname || t.agent_id;
  const give = useMutation({
    mutationFn: () => (what === "retry" ? retryTargets : skipTargets)(r.id, [t.agent_id], why.trim()),
    onSuccess: () => {
      toast({ kind: "done", title: what === "retry" ? `Retrying ${host}` : `Skipped ${host}` });
      void client.invalidateQueries({ queryKey: keys.rollouts });
      onClose();
    },
  });
  return (
    <ConfirmDialog
      title={what === "retry" ? `Retry ${host}?` : `Skip ${host}?`}
      confirm={what === "retry" ? `Retry ${host}` : `Skip ${host}`}
      harmless={what === "retry"}
      keep="Dismiss"
      busy={give.isPending}
      error={give.error}
      onConfirm={() => give.mutate()}
      onClose={onClose}
    >
      <Stack gap="sm">
        <span>
          {what === "retry"
            ? "It is offered the version again when its batch is due."
            : t.state === "offered"
              ? "Its offer is withdrawn if it has not started, and this rollout no longer upgrades it."
              : "This rollout no longer upgrades it. It keeps its version."}
        </span>
        <WhyField value={why} onChange={setWhy} />
      </Stack>
    </ConfirmDialog>
  );
}
