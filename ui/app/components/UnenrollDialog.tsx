import { Checkbox, Stack } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { call } from "~/api/client";
import { keys } from "~/api/queries";
import type { Agent } from "~/api/types";
import { hostOf } from "~/util/facts";
import { ConfirmDialog } from "./ConfirmDialog";
import { useToast } from "./Toasts";

export function UnenrollDialog({ agent, onClose }: { agent: Agent; onClose: () => void }) {
  const [revoke, setRevoke] = useState(false);
  const client = useQueryClient();
  const toast = useToast();
  const host = hostOf(agent);
  const unenroll = useMutation({
    mutationFn: () => call("post", "/api/fleet/agents/{agentId}/unenroll", { path: { agentId: agent.id }, body: { revoke } }),
    onSuccess: () => {
      toast({ kind: "done", title: revoke ? `${host} was put out of the fleet` : `${host} was asked to leave` });
      void client.invalidateQueries({ queryKey: keys.agents });
      onClose();
    },
  });
  return (
    <ConfirmDialog
      title={`Unenroll ${host}?`}
      confirm={`Unenroll ${host}`}
      busy={unenroll.isPending}
      error={unenroll.error}
      onConfirm={() => unenroll.mutate()}
      onClose={onClose}
    >
      <Stack gap="sm">
        <span>The agent stops checking in and takes no more upgrades. It stays installed on its host; to bring it back, enrol it again.</span>
        <Checkbox
          checked={revoke}
          onChange={(e) => setRevoke(e.currentTarget.checked)}
          label="Revoke its key at once"
          description="For a host that is lost or no longer trusted: the agent is not asked, its key stops working now."
        />
      </Stack>
    </ConfirmDialog>
  );
}
