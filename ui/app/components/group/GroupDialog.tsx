import { Radio, Select, Stack } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { groupCommand } from "~/api/groups";
import { keys } from "~/api/queries";
import type { Group } from "~/api/types";
import { groupCommandText, groupNeedsWhy, memberLabel, skippable, whyNotGroup, type GroupCommand } from "~/util/group";
import { ConfirmDialog } from "../ConfirmDialog";
import { WhyField } from "../rollout/CommandDialog";
import { useToast } from "../Toasts";

interface Props {
  group: Group;
  /** The commands to choose from. */
  commands: readonly GroupCommand[];
  /** Of the preview that is started. */
  hash?: string;
  onDone?: () => void;
  onClose: () => void;
}

export function GroupDialog({ group: g, commands, hash, onDone, onClose }: Props) {
  const client = useQueryClient();
  const toast = useToast();
  const [chosen, setChosen] = useState<GroupCommand>(commands[0]!);
  const [why, setWhy] = useState("");
  const members = skippable(g);
  const [picked, setPicked] = useState<string | null>(null);
  // The member that stopped the group is most likely meant.
  const member = picked ?? members.find((m) => m.name === g.stop?.member)?.name ?? members[0]?.name;
  const text = groupCommandText(chosen, g);
  const must = groupNeedsWhy(chosen, g, member);
  const give = useMutation({
    mutationFn: () => groupCommand({ id: g.id, what: chosen, why: why.trim(), member, hash }),
    onSuccess: () => {
      toast({ kind: "done", title: text.done });
      void client.invalidateQueries({ queryKey: keys.groups });
      onDone?.();
      onClose();
    },
    // The preview behind the dialog is outdated.
    onError: () => {
      if (chosen === "start") void client.invalidateQueries({ queryKey: keys.groupPreview(g.id) });
    },
  });
  return (
    <ConfirmDialog
      title={text.title}
      confirm={text.confirm}
      harmless={text.harmless}
      keep="Dismiss"
      // The state may change while the dialog is open.
      reason={whyNotGroup(chosen, g) ?? (must && why.trim() === "" ? "Give a reason to continue." : null)}
      busy={give.isPending}
      error={give.error}
      onConfirm={() => give.mutate()}
      onClose={onClose}
    >
      <Stack gap="sm">
        {commands.length > 1 ? (
          <Radio.Group value={chosen} onChange={(v) => setChosen(v as GroupCommand)} aria-label="How">
            <Stack gap={6}>{commands.map((c) => <Radio key={c} value={c} size="sm" label={groupCommandText(c, g).confirm} />)}</Stack>
          </Radio.Group>
        ) : null}
        <span role="status">{text.text}</span>
        {chosen === "skip" && member ? (
          <Select
            label="Member"
            data={members.map((m) => ({ value: m.name, label: `${m.name}: ${memberLabel[m.state].toLowerCase()}` }))}
            value={member}
            onChange={setPicked}
            allowDeselect={false}
          />
        ) : null}
        <WhyField value={why} onChange={setWhy} required={must} />
      </Stack>
    </ConfirmDialog>
  );
}
