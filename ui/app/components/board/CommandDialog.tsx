/** The question before a command on a rollout: what happens to how many, the server's warning, and a reason. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { keys } from "~/api/queries";
import { command } from "~/api/rollouts";
import type { Command, Rollout } from "~/api/types";
import { commandText } from "~/util/board/commandText";
import { isOwned, takeOverOf, whyNotTakeOver } from "~/util/fleet/owned";
import { sentence } from "~/util/words";
import { Callout } from "../base/Callout";
import { Dialog } from "../base/Dialog";
import { toast } from "../base/Toasts";
import { TakeOver } from "../fleet/TakeOver";
import classes from "./Board.module.css";

interface Props {
  rollout: Rollout;
  /** As the server answers it now: it may become impossible while the dialog is open. */
  asked: Command;
  /** The agents whose upgrade failed, for a skip. */
  failed: readonly string[];
  onClose: () => void;
}

export function CommandDialog({ rollout: r, asked, failed, onClose }: Props) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const [owner, setOwner] = useState("");
  // The number of hosts changes while a rollout runs; what was asked stays as it was.
  const [text] = useState(() => commandText(asked.name, r));
  const give = useMutation({
    mutationFn: (why: string) => command(r, asked.name, { why, takeOver: takeOverOf(owner), agents: failed }),
    onSuccess: (answer) => {
      toast({ kind: "done", title: text.done });
      if (asked.name === "delete") {
        client.removeQueries({ queryKey: keys.rollout(r.id) });
        void navigate({ to: "/rollouts" });
      } else if (answer.id !== r.id) {
        void navigate({ to: "/rollouts/$rolloutId", params: { rolloutId: answer.id } });
      } else {
        client.setQueryData(keys.rollout(r.id), answer);
      }
      void client.invalidateQueries({ queryKey: keys.rollouts });
      onClose();
    },
  });
  return (
    <Dialog
      title={text.title}
      confirm={text.confirm}
      danger={asked.danger || asked.name === "delete"}
      typed={text.typed}
      why={asked.needs_reason ? "required" : "optional"}
      reason={asked.allowed ? whyNotTakeOver(give.error, owner) : sentence(asked.reason ?? "It is not possible any more")}
      busy={give.isPending}
      error={isOwned(give.error) ? null : give.error}
      onConfirm={(why) => give.mutate(why)}
      onClose={onClose}
    >
      <div className={classes.dialog}>
        <span>{text.text}</span>
        {asked.warning ? <Callout kind="warning">{sentence(asked.warning)}</Callout> : null}
        <TakeOver error={give.error} typed={owner} onType={setOwner} />
      </div>
    </Dialog>
  );
}
