import { ScrollArea, Stack, Text } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { IconArrowRight, IconCheck, IconMinus } from "@tabler/icons-react";
import { useState } from "react";
import { messageOf } from "~/api/client";
import { keys, rollbackPreviewQuery } from "~/api/queries";
import type { RollbackPreview, RollbackPreviewItem } from "~/api/types";
import { startRollback } from "~/api/upgrade";
import { hostOf } from "~/util/facts";
import { countOf, isMatching, selectionOf, type Chosen } from "~/util/matching";
import { confirmText, limit, whyNotGoBack } from "~/util/rollback";
import { isOwned, takeOverOf, whyNotTakeOver } from "~/util/owned";
import { plural } from "~/util/words";
import { Callout } from "./Callout";
import { ConfirmDialog } from "./ConfirmDialog";
import { MatchingNote } from "./MatchingNote";
import { TakeOver } from "./TakeOver";
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

/** Asks before agents are rolled back, and shows for each the version and until when it is possible. */
export function RollbackDialog({ chosen, onClose, onDone }: Props) {
  const client = useQueryClient();
  const toast = useToast();
  const preview = useQuery(rollbackPreviewQuery(selectionOf(chosen)));
  const count = countOf(chosen);
  const [owner, setOwner] = useState("");
  const start = useMutation({
    // Only agents that the preview showed as rolled back. Of all matching agents, the server refuses the others.
    mutationFn: () => startRollback(isMatching(chosen) ? chosen : preview.data!.items.filter((i) => i.will).map((i) => i.agent_id), takeOverOf(owner)),
    onSuccess: () => {
      toast({
        kind: "done",
        title: confirmText(preview.data, count).replace(/^Roll back/, "Rolling back"),
        body: <TextLink to="/activity" size="sm">Follow it under Activity</TextLink>,
      });
      void client.invalidateQueries({ queryKey: keys.agents });
      void client.invalidateQueries({ queryKey: keys.actions });
      onDone?.();
      onClose();
    },
  });
  const one = !isMatching(chosen) && chosen.length === 1 ? chosen[0] : undefined;
  return (
    <ConfirmDialog
      title={one ? `Roll back ${hostOf(one)}?` : `Roll back ${isMatching(chosen) ? "all matching, " : ""}${plural(count, "agent")}?`}
      confirm={`${isOwned(start.error) ? "Take over: " : ""}${confirmText(preview.data, count)}`}
      reason={whyNotGoBack(preview.data, preview.error) ?? whyNotTakeOver(start.error, owner)}
      busy={start.isPending}
      error={isOwned(start.error) ? null : start.error}
      onConfirm={() => start.mutate()}
      onClose={onClose}
    >
      <Stack gap="sm">
        {isMatching(chosen) ? <MatchingNote matching={chosen} /> : null}
        <span>Each agent goes back to its previous version. An upgrade that is being watched is undone.</span>
        {preview.error ? <Callout kind="error" title="The preview failed">{messageOf(preview.error)}</Callout> : null}
        {preview.data ? <Preview preview={preview.data} /> : null}
        <TakeOver error={start.error} typed={owner} onType={setOwner} />
      </Stack>
    </ConfirmDialog>
  );
}

function Preview({ preview }: { preview: RollbackPreview }) {
  // Agents that are not rolled back come first: the operator has to decide about them.
  const items = [...preview.items].sort((a, b) => Number(a.will) - Number(b.will));
  return (
    <section aria-label="Preview" className={classes.preview}>
      <Text size="sm" fw={600} className={classes.verdict} role="status">
        {preview.will > 0 ? `${plural(preview.will, "agent")} will be rolled back` : "No agent will be rolled back"}
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

function Line({ item }: { item: RollbackPreviewItem }) {
  const remarks = [item.will ? `Possible ${limit(item.valid_until)}` : "", item.reason ?? ""].filter(Boolean).join("; ");
  return (
    <li className={classes.item} data-will={item.will || undefined}>
      {item.will ? <IconCheck size={15} aria-label="Will be rolled back:" /> : <IconMinus size={15} aria-label="Will not be rolled back:" />}
      <span className={classes.host}>{item.hostname || item.agent_id}</span>
      <span className={`mono ${classes.versions}`}>
        {item.version}
        {item.will ? <><IconArrowRight size={12} aria-label="to" />{item.to}</> : null}
      </span>
      {remarks ? <span className={classes.why}>{remarks}</span> : null}
    </li>
  );
}
