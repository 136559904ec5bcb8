import { Radio, Stack, Textarea } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { keys } from "~/api/queries";
import { command } from "~/api/rollouts";
import type { Rollout } from "~/api/types";
import { commandText } from "~/util/commandText";
import { needsWhy, whyNot, type Command } from "~/util/rollout";
import { isOwned, takeOverOf, whyNotTakeOver } from "~/util/owned";
import { ConfirmDialog } from "../ConfirmDialog";
import { useClock } from "../Now";
import { TakeOver } from "../TakeOver";
import { TextLink } from "../TextLink";
import { useToast } from "../Toasts";

interface Props {
  rollout: Rollout;
  /** The commands to choose from. */
  commands: readonly Command[];
  onDone?: (answer: Rollout) => void;
  onClose: () => void;
}

/** The longest reason that can be entered. */
export const WHY_CHARS = 500;

export function CommandDialog({ rollout: r, commands, onDone, onClose }: Props) {
  const client = useQueryClient();
  const toast = useToast();
  const now = useClock();
  const [chosen, setChosen] = useState<Command>(commands.find((c) => !whyNot(c, r, now)) ?? commands[0]!);
  const [why, setWhy] = useState("");
  const [owner, setOwner] = useState("");
  const text = commandText(chosen, r);
  const must = needsWhy(chosen, r);
  const give = useMutation({
    mutationFn: () => command(r, chosen, why.trim(), takeOverOf(owner)),
    onSuccess: (answer) => {
      toast({
        kind: "done",
        title: text.done,
        body: answer.id === r.id ? undefined : <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: answer.id }} size="sm">Show the rollback</TextLink>,
      });
      void client.invalidateQueries({ queryKey: keys.rollouts });
      onDone?.(answer);
      onClose();
    },
  });
  return (
    <ConfirmDialog
      title={text.title}
      confirm={text.confirm}
      harmless={text.harmless}
      keep="Dismiss"
      // The state may change while the dialog is open.
      reason={whyNot(chosen, r, now) ?? (must && why.trim() === "" ? "Give a reason to continue." : whyNotTakeOver(give.error, owner))}
      busy={give.isPending}
      error={isOwned(give.error) ? null : give.error}
      onConfirm={() => give.mutate()}
      onClose={onClose}
    >
      <Stack gap="sm">
        {commands.length > 1 ? (
          <Radio.Group value={chosen} onChange={(v) => setChosen(v as Command)} aria-label="How">
            <Stack gap={6}>
              {commands.map((c) => {
                const no = whyNot(c, r, now);
                return <Radio key={c} value={c} size="sm" label={commandText(c, r).confirm} description={no ?? undefined} disabled={!!no} />;
              })}
            </Stack>
          </Radio.Group>
        ) : null}
        <span role="status">{text.text}</span>
        <WhyField value={why} onChange={setWhy} required={must} />
        <TakeOver error={give.error} typed={owner} onType={setOwner} />
      </Stack>
    </ConfirmDialog>
  );
}

export function WhyField({ value, onChange, required }: { value: string; onChange: (why: string) => void; required?: boolean }) {
  return (
    <Textarea
      label="Reason"
      description="Shown in the audit trail with your name."
      required={required}
      maxLength={WHY_CHARS}
      autosize
      minRows={2}
      maxRows={6}
      value={value}
      onChange={(e) => onChange(e.currentTarget.value)}
    />
  );
}
