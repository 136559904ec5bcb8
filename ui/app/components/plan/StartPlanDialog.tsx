import { Stack } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { agentTotalQuery } from "~/api/agents";
import { createAndStart, type Started } from "~/api/plans";
import { keys } from "~/api/queries";
import type { Plan, Preview } from "~/api/types";
import { isOwned, takeOverOf, whyNotTakeOver } from "~/util/fleet/owned";
import { stopsAt, typedFor, willOf, wontOf } from "~/util/plan/planPreview";
import { durationText, strategyText } from "~/util/rollout/rolloutText";
import { plural } from "~/util/words";
import { Dialog } from "../base/Dialog";
import { TakeOver } from "../fleet/TakeOver";

interface Props {
  plan: Plan;
  preview: Preview;
  onDone: (started: Started) => void;
  onClose: () => void;
}

/** Asks before a plan is created and started at once, as it was previewed. */
export function StartPlanDialog({ plan, preview: p, onDone, onClose }: Props) {
  const client = useQueryClient();
  const [owner, setOwner] = useState("");
  const fleet = useQuery(agentTotalQuery(undefined));
  const start = useMutation({
    mutationFn: (why: string) => createAndStart({ plan, hash: p.hash, why: why || (plan.description ?? ""), takeOver: takeOverOf(owner) }),
    onSuccess: (started) => {
      void client.invalidateQueries({ queryKey: keys.rollouts });
      onDone(started);
    },
  });
  const hosts = willOf(p);
  const verb = `Upgrade ${plural(hosts, "host")}`;
  return (
    <Dialog
      title={`${verb}${plan.component ? `: ${plan.component}` : ""}${plan.version ? ` to ${plan.version}` : ""}?`}
      confirm={isOwned(start.error) ? `Take over and upgrade ${plural(hosts, "host")}` : verb}
      typed={typedFor(hosts, fleet.data)}
      why="optional"
      reason={whyNotTakeOver(start.error, owner)}
      busy={start.isPending}
      error={isOwned(start.error) ? null : start.error}
      onConfirm={(why) => start.mutate(why)}
      onClose={onClose}
    >
      <Stack gap="xs">
        <span>
          {strategyText(plan)}, about {durationText(p.estimate)}. {plural(wontOf(p), "host is", "hosts are")} left out. {stopsAt(plan)}
        </span>
        <span>It starts exactly as previewed. If the fleet changes before that, nothing starts, and the plan is kept as a draft.</span>
        <TakeOver error={start.error} typed={owner} onType={setOwner} />
      </Stack>
    </Dialog>
  );
}
