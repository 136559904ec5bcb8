/** Asks before hosts go back to their earlier version, and shows how many can. */

import { IconArrowRight } from "@tabler/icons-react";
import { keepPreviousData, useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { rollbackPreviewQuery } from "~/api/queries";
import { startRollback } from "~/api/upgrade";
import { type Chosen, countOf, isMatching, selectionOf, typedFor } from "~/util/agents/chosen";
import { hostOf } from "~/util/agents/facts";
import { isOwned, showsOwned, takeOverOf, whyNotTakeOver } from "~/util/fleet/owned";
import { confirmText, limit, whyNotGoBack } from "~/util/upgrade/rollback";
import { plural } from "~/util/words";
import { useOrdered } from "../agents/useOrdered";
import { Dialog } from "../base/Dialog";
import { TakeOver } from "../fleet/TakeOver";
import { OrderPreview } from "./OrderPreview";
import classes from "./OrderPreview.module.css";

interface Props {
  /** Agents, or all that match a query. */
  chosen: Chosen;
  onClose: () => void;
  onDone?: () => void;
}

export function RollbackDialog({ chosen, onClose, onDone }: Props) {
  const ordered = useOrdered(onClose, onDone);
  const matching = isMatching(chosen) ? chosen : null;
  const [forward, setForward] = useState(false);
  const selection = { ...selectionOf(chosen), max_items: matching ? 0 : undefined };
  const preview = useQuery({ ...rollbackPreviewQuery({ ...selection, forward: forward || undefined }), placeholderData: keepPreviousData });
  // What could be included stays on the screen once it is included.
  const offered = useQuery(rollbackPreviewQuery(selection));
  const current = preview.isPlaceholderData ? undefined : preview.data;
  const [owner, setOwner] = useState("");
  const host = !isMatching(chosen) && chosen.length === 1 ? hostOf(chosen[0]!) : undefined;
  const start = useMutation({
    // Only agents that the preview showed as rolled back. Of all matching agents, the server refuses the others.
    mutationFn: () =>
      startRollback(matching ?? current!.items.filter((i) => i.will).map((i) => i.agent_id), { takeOver: takeOverOf(owner), forward: forward || undefined }),
    onSuccess: (ids) =>
      ordered(
        confirmText(current, countOf(chosen), forward)
          .replace(/^Roll back/, "Rolling back")
          .replace(/^Move/, "Moving"),
        ids[0],
      ),
  });
  const owned = isOwned(start.error) || showsOwned(preview.data);
  const first = host ? preview.data?.items[0] : undefined;
  return (
    <Dialog
      title={`${forward ? "Move" : "Roll back"} ${host ?? plural(countOf(chosen), "host")}${forward ? " to the other version" : ""}?`}
      confirm={`${owned ? "Take over: " : ""}${confirmText(current, countOf(chosen), forward)}`}
      danger
      size="lg"
      typed={current ? typedFor(forward ? "move" : "roll back", current.will) : undefined}
      reason={whyNotGoBack(current, preview.error) ?? whyNotTakeOver(start.error, owner, owned)}
      busy={start.isPending}
      error={isOwned(start.error) ? undefined : start.error}
      onConfirm={() => start.mutate()}
      onClose={onClose}
    >
      <p>
        {host ? "The host goes back to its earlier version." : "Each host goes back to its earlier version."}
        {forward ? " A host that was rolled back goes forward to the version that it has left." : ""} An upgrade that is being watched is undone.
      </p>
      {first?.will ? (
        <p className={`mono ${classes.versions}`}>
          {first.version}
          <IconArrowRight size={13} aria-label="to" />
          {first.to} <span>(possible {limit(first.valid_until)})</span>
        </p>
      ) : null}
      <OrderPreview
        byQuery={!!matching}
        preview={preview.data}
        error={preview.error}
        stale={!current}
        does={forward ? "be moved" : "be rolled back"}
        offered={(offered.data?.causes ?? []).filter((c) => c.code === "forward")}
        taken={{ forward }}
        onTake={(_, on) => setForward(on)}
      />
      <TakeOver error={start.error} owned={owned} typed={owner} onType={setOwner} />
    </Dialog>
  );
}
