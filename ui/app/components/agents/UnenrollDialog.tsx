/** Asks before hosts are unenrolled, and shows how many can be. */
import { Checkbox, Stack } from "@mantine/core";
import { keepPreviousData, useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { unenrollPreviewQuery } from "~/api/queries";
import { startUnenroll } from "~/api/upgrade";
import { type Chosen, countOf, isMatching, selectionOf, typedFor } from "~/util/agents/chosen";
import { hostOf } from "~/util/agents/facts";
import { isOverLimit, overLimitOf } from "~/util/agents/removalLimit";
import { confirmText, doneText, whyNotLeave } from "~/util/agents/unenroll";
import { plural } from "~/util/words";
import { Callout } from "../base/Callout";
import { Dialog } from "../base/Dialog";
import { OrderPreview } from "../upgrade/OrderPreview";
import { useOrdered } from "./useOrdered";

interface Props {
  /** Agents, or all that match a query. */
  chosen: Chosen;
  onClose: () => void;
  onDone?: () => void;
}

export function UnenrollDialog({ chosen, onClose, onDone }: Props) {
  const ordered = useOrdered(onClose, onDone);
  const [revoke, setRevoke] = useState(false);
  const [force, setForce] = useState(false);
  const asked = { ...selectionOf(chosen), revoke, force, max_items: isMatching(chosen) ? 0 : undefined };
  const preview = useQuery({ ...unenrollPreviewQuery(asked), placeholderData: keepPreviousData });
  // What could be included stays on the screen once it is included.
  const offered = useQuery({ ...unenrollPreviewQuery({ ...asked, force: false }), placeholderData: keepPreviousData });
  const fresh = preview.isPlaceholderData ? undefined : preview.data;
  const count = countOf(chosen);
  const one = count === 1;
  const host = !isMatching(chosen) && chosen.length === 1 ? hostOf(chosen[0]!) : undefined;
  const unenroll = useMutation({
    // Only agents that the preview showed as unenrolled. Of all matching agents, the server refuses the others.
    mutationFn: (why: string) =>
      startUnenroll(isMatching(chosen) ? chosen : fresh!.items.filter((i) => i.will).map((i) => i.agent_id), { revoke, force, overLimit: overLimitOf(why) }),
    onSuccess: () => ordered(doneText(fresh, count, revoke, host)),
  });
  // The reason stays on the screen while another preview is read.
  const limited = preview.data?.refused !== undefined || isOverLimit(unenroll.error);
  return (
    <Dialog
      title={`Unenrol ${host ?? plural(count, "host")}?`}
      confirm={confirmText(preview.data, count, host)}
      danger
      size="lg"
      typed={fresh ? typedFor("unenrol", fresh.will) : undefined}
      why={limited ? "required" : undefined}
      reason={whyNotLeave(fresh, preview.error)}
      busy={unenroll.isPending}
      error={unenroll.error}
      onConfirm={(why) => unenroll.mutate(why)}
      onClose={onClose}
    >
      <Stack gap="sm">
        <span>
          {one ? "Its agent stops" : "Their agents stop"} checking in and {one ? "is" : "are"} not upgraded any more. {one ? "It stays" : "They stay"} installed
          and can be enrolled again.
        </span>
        <Checkbox
          checked={revoke}
          onChange={(e) => setRevoke(e.currentTarget.checked)}
          label={one ? "Revoke its key at once" : "Revoke their keys at once"}
          description="For hosts that are lost or no longer trusted: the key stops working now, without an acknowledgement of the agent."
        />
      </Stack>
      {preview.data?.refused ? (
        <Callout kind="warning">These are more hosts than may be taken away within an hour. Give a reason if all of them are meant.</Callout>
      ) : null}
      <OrderPreview
        byQuery={isMatching(chosen)}
        preview={preview.data}
        error={preview.error}
        stale={preview.isPlaceholderData}
        does="be unenrolled"
        offered={offered.data?.causes?.filter((c) => c.choice === "force")}
        taken={{ force }}
        onTake={(_, on) => setForce(on)}
      />
    </Dialog>
  );
}
