/** Asks before hosts go back to their earlier version, and shows how many can. */
import { useMutation, useQuery } from "@tanstack/react-query";
import { IconArrowRight } from "@tabler/icons-react";
import { useState } from "react";
import { rollbackPreviewQuery } from "~/api/queries";
import { startRollback } from "~/api/upgrade";
import { countOf, isMatching, selectionOf, typedFor, type Chosen } from "~/util/chosen";
import { hostOf } from "~/util/facts";
import { isOwned, showsOwned, takeOverOf, whyNotTakeOver } from "~/util/owned";
import { confirmText, limit, whyNotGoBack } from "~/util/rollback";
import { plural } from "~/util/words";
import { useOrdered } from "./agents/useOrdered";
import { Dialog } from "./base/Dialog";
import { OrderPreview } from "./OrderPreview";
import { TakeOver } from "./TakeOver";
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
  const preview = useQuery(rollbackPreviewQuery({ ...selectionOf(chosen), max_items: matching ? 0 : undefined }));
  const [owner, setOwner] = useState("");
  const host = !isMatching(chosen) && chosen.length === 1 ? hostOf(chosen[0]!) : undefined;
  const start = useMutation({
    // Only agents that the preview showed as rolled back. Of all matching agents, the server refuses the others.
    mutationFn: () => startRollback(matching ?? preview.data!.items.filter((i) => i.will).map((i) => i.agent_id), takeOverOf(owner)),
    onSuccess: (ids) => ordered(confirmText(preview.data, countOf(chosen)).replace(/^Roll back/, "Rolling back"), ids[0]),
  });
  const owned = isOwned(start.error) || showsOwned(preview.data);
  const first = host ? preview.data?.items[0] : undefined;
  return (
    <Dialog
      title={`Roll back ${host ?? plural(countOf(chosen), "host")}?`}
      confirm={`${owned ? "Take over: " : ""}${confirmText(preview.data, countOf(chosen))}`}
      danger
      size="lg"
      typed={preview.data ? typedFor("roll back", preview.data.will) : undefined}
      reason={whyNotGoBack(preview.data, preview.error) ?? whyNotTakeOver(start.error, owner, owned)}
      busy={start.isPending}
      error={isOwned(start.error) ? undefined : start.error}
      onConfirm={() => start.mutate()}
      onClose={onClose}
    >
      <p>{host ? "The host goes back to its earlier version." : "Each host goes back to its earlier version."} An upgrade that is being watched is undone.</p>
      {first?.will ? <p className={`mono ${classes.versions}`}>{first.version}<IconArrowRight size={13} aria-label="to" />{first.to} <span>(possible {limit(first.valid_until)})</span></p> : null}
      <OrderPreview byQuery={!!matching} preview={preview.data} error={preview.error} does="be rolled back" />
      <TakeOver error={start.error} owned={owned} typed={owner} onType={setOwner} />
    </Dialog>
  );
}
