import { Checkbox, ScrollArea, Stack, Text } from "@mantine/core";
import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { IconCheck, IconMinus } from "@tabler/icons-react";
import { useState } from "react";
import { messageOf } from "~/api/client";
import { keys, unenrollPreviewQuery } from "~/api/queries";
import type { UnenrollPreview, UnenrollPreviewItem } from "~/api/types";
import { startUnenroll } from "~/api/upgrade";
import { hostOf } from "~/util/facts";
import { countOf, isMatching, selectionOf, type Chosen } from "~/util/matching";
import { confirmText, doneText, whyNotLeave } from "~/util/unenroll";
import { plural } from "~/util/words";
import { Callout } from "./Callout";
import { ConfirmDialog } from "./ConfirmDialog";
import { MatchingNote } from "./MatchingNote";
import { TextLink } from "./TextLink";
import { useToast } from "./Toasts";
import classes from "./UpgradeDialog.module.css";

/** A longer list is not read; the counts above it are complete. */
const LINES = 200;

interface Props {
  /** Agents, or all that match a query. */
  chosen: Chosen;
  onClose: () => void;
  onDone?: () => void;
}

/** Asks before agents are unenrolled, and shows how many and which. */
export function UnenrollDialog({ chosen, onClose, onDone }: Props) {
  const [revoke, setRevoke] = useState(false);
  const [force, setForce] = useState(false);
  const client = useQueryClient();
  const toast = useToast();
  // The previous preview stays visible while the next one loads; it cannot be confirmed.
  const preview = useQuery({ ...unenrollPreviewQuery({ ...selectionOf(chosen), revoke, force }), placeholderData: keepPreviousData });
  const fresh = preview.isPlaceholderData ? undefined : preview.data;
  const count = countOf(chosen);
  const one = !isMatching(chosen) && chosen.length === 1 ? chosen[0] : undefined;
  const host = one ? hostOf(one) : undefined;
  const unenroll = useMutation({
    // Only agents that the preview showed as unenrolled. Of all matching agents, the server refuses the others.
    mutationFn: () => startUnenroll(isMatching(chosen) ? chosen : fresh!.items.filter((i) => i.will).map((i) => i.agent_id), { revoke, force }),
    onSuccess: () => {
      toast({
        kind: "done",
        title: doneText(fresh, count, revoke, host),
        body: one ? undefined : <TextLink to="/activity" size="sm">Follow it under Activity</TextLink>,
      });
      void client.invalidateQueries({ queryKey: keys.agents });
      void client.invalidateQueries({ queryKey: keys.actions });
      onDone?.();
      onClose();
    },
  });
  return (
    <ConfirmDialog
      title={host ? `Unenroll ${host}?` : `Unenroll ${isMatching(chosen) ? "all matching, " : ""}${plural(count, "agent")}?`}
      confirm={confirmText(preview.data, count, host)}
      reason={whyNotLeave(fresh, preview.error)}
      busy={unenroll.isPending}
      error={unenroll.error}
      onConfirm={() => unenroll.mutate()}
      onClose={onClose}
    >
      <Stack gap="sm">
        {isMatching(chosen) ? <MatchingNote matching={chosen} /> : null}
        <span>
          {one ? "The agent stops checking in and is not upgraded any more. It stays installed on its host and can be enrolled again."
            : "The agents stop checking in and are not upgraded any more. They stay installed on their hosts and can be enrolled again."}
        </span>
        <Checkbox
          checked={revoke}
          onChange={(e) => setRevoke(e.currentTarget.checked)}
          label={one ? "Revoke its key at once" : "Revoke their keys at once"}
          description={one ? "For a host that is lost or no longer trusted: the agent's key stops working now, without its acknowledgement."
            : "For hosts that are lost or no longer trusted: the agents' keys stop working now, without their acknowledgement."}
        />
        <Checkbox
          checked={force}
          onChange={(e) => setForce(e.currentTarget.checked)}
          label={one ? "Even if it is in a rollout" : "Include agents in a rollout"}
          description="The rollout continues without them."
        />
        {preview.error ? <Callout kind="error" title="The preview failed">{messageOf(preview.error)}</Callout> : null}
        {preview.data ? <Preview preview={preview.data} stale={preview.isPlaceholderData} /> : null}
      </Stack>
    </ConfirmDialog>
  );
}

function Preview({ preview, stale }: { preview: UnenrollPreview; stale: boolean }) {
  // Agents that are not unenrolled come first: the operator has to decide about them.
  const items = [...preview.items].sort((a, b) => Number(a.will) - Number(b.will));
  return (
    <section aria-label="Preview" className={classes.preview} data-stale={stale || undefined}>
      <Text size="sm" fw={600} className={classes.verdict} role="status">
        {preview.will > 0 ? `${plural(preview.will, "agent")} will be unenrolled` : "No agent will be unenrolled"}
        {preview.wont > 0 ? `; ${preview.wont.toLocaleString()} will not` : ""}
      </Text>
      <ScrollArea.Autosize mah={230} type="auto" viewportProps={{ tabIndex: 0, "aria-label": "Each agent" }}>
        <ul className={classes.items}>
          {items.slice(0, LINES).map((item) => <Line key={item.agent_id} item={item} />)}
        </ul>
        {items.length > LINES ? <Text size="xs" c="dimmed" p="xs">and {(items.length - LINES).toLocaleString()} more</Text> : null}
      </ScrollArea.Autosize>
    </section>
  );
}

function Line({ item }: { item: UnenrollPreviewItem }) {
  return (
    <li className={classes.item} data-will={item.will || undefined}>
      {item.will ? <IconCheck size={15} aria-label="Will be unenrolled:" /> : <IconMinus size={15} aria-label="Will not be unenrolled:" />}
      <span className={classes.host}>{item.hostname || item.agent_id}</span>
      <span className={classes.versions}>{item.status}</span>
      {item.reason ? <span className={classes.why}>{item.reason}</span> : null}
    </li>
  );
}
