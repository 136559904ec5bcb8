/** Drafts another rollout for the hosts that failed in one that has ended. */
import { Button } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { keys } from "~/api/queries";
import { createForFailed } from "~/api/rollouts";
import type { Rollout } from "~/api/types";
import { isOwned, takeOverOf, whyNotTakeOver } from "~/util/fleet/owned";
import { againOf } from "~/util/rollout/rollout";
import { plural } from "~/util/words";
import { Dialog } from "../base/Dialog";
import { toast } from "../base/Toasts";
import { TakeOver } from "../fleet/TakeOver";
import classes from "./Board.module.css";

export function TryAgain({ rollout: r }: { rollout: Rollout }) {
  const [asked, setAsked] = useState(false);
  if (againOf(r) === 0) return null;
  return (
    <>
      <Button variant="default" onClick={() => setAsked(true)}>
        Try what failed again…
      </Button>
      {asked ? <TryAgainDialog rollout={r} onClose={() => setAsked(false)} /> : null}
    </>
  );
}

function TryAgainDialog({ rollout: r, onClose }: { rollout: Rollout; onClose: () => void }) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const [owner, setOwner] = useState("");
  const hosts = plural(againOf(r), "host");
  const create = useMutation({
    mutationFn: (why: string) => createForFailed(r.id, { why, takeOver: takeOverOf(owner) }),
    onSuccess: (draft) => {
      toast({ kind: "done", title: `“${draft.plan.name}” is drafted` });
      void client.invalidateQueries({ queryKey: keys.rollouts });
      void navigate({ to: "/rollouts/$rolloutId", params: { rolloutId: draft.id } });
      onClose();
    },
  });
  return (
    <Dialog
      title={`Try ${hosts} again?`}
      confirm="Draft the rollout"
      why="optional"
      reason={whyNotTakeOver(create.error, owner)}
      busy={create.isPending}
      error={isOwned(create.error) ? null : create.error}
      onConfirm={(why) => create.mutate(why)}
      onClose={onClose}
    >
      <div className={classes.dialog}>
        <span>
          A draft gets the plan of “{r.plan.name}”, for its hosts that failed, were rolled back or could not be given the version. Those that run the version by
          now are left out. No host changes before you have read its preview and started it.
        </span>
        <TakeOver error={create.error} typed={owner} onType={setOwner} />
      </div>
    </Dialog>
  );
}
