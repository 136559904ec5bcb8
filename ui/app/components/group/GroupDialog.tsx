import { Select, Stack } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { groupCommand } from "~/api/groups";
import { keys } from "~/api/queries";
import type { Command, GroupStatus } from "~/api/types";
import { type GroupCommand, groupCommandText, memberLabel, skippable } from "~/util/group/group";
import { sentence } from "~/util/words";
import { Callout } from "../base/Callout";
import { Dialog } from "../base/Dialog";
import { toast } from "../base/Toasts";

interface Props {
  group: GroupStatus;
  command: Command;
  /** Of the preview that is started. */
  hash?: string;
  /** What is typed to confirm a start of many hosts. */
  typed?: string;
  onDone?: () => void;
  onClose: () => void;
}

export function GroupDialog({ group: g, command, hash, typed, onDone, onClose }: Props) {
  const client = useQueryClient();
  const what = command.name as GroupCommand;
  const members = skippable(g);
  const [picked, setPicked] = useState<string | null>(null);
  // The member that stopped the group is most likely meant.
  const member = picked ?? members.find((m) => m.name === g.stop?.member)?.name ?? members[0]?.name;
  const text = groupCommandText(what, g);
  // The state may change while the dialog is open.
  const now = g.commands?.find((c) => c.name === what) ?? command;
  const give = useMutation({
    mutationFn: (why: string) => groupCommand({ id: g.id, what, why, member, hash }),
    onSuccess: () => {
      toast({ kind: "done", title: text.done });
      void client.invalidateQueries({ queryKey: keys.groups });
      onDone?.();
      onClose();
    },
    // The preview behind the dialog is outdated.
    onError: () => {
      if (what === "start") void client.invalidateQueries({ queryKey: keys.groupPreview(g.id) });
    },
  });
  return (
    <Dialog
      title={text.title}
      confirm={text.confirm}
      danger={!text.harmless}
      typed={typed ?? (what === "rollback" ? g.plan.name : undefined)}
      why={now.needs_reason ? "required" : "optional"}
      reason={now.allowed ? null : sentence(now.reason ?? "It is not possible now")}
      busy={give.isPending}
      error={give.error}
      onConfirm={(why) => give.mutate(why)}
      onClose={onClose}
    >
      <Stack gap="sm">
        <span>{text.text}</span>
        {now.warning ? <Callout kind="warning">{sentence(now.warning)}</Callout> : null}
        {what === "skip" && member ? (
          <Select
            label="Member"
            data={members.map((m) => ({ value: m.name, label: `${m.name}: ${memberLabel[m.state].toLowerCase()}` }))}
            value={member}
            onChange={setPicked}
            allowDeselect={false}
          />
        ) : null}
      </Stack>
    </Dialog>
  );
}
