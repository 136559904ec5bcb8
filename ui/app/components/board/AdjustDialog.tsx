/** Gives a rollout other limits and rules while it is under way. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { keys } from "~/api/queries";
import { adjust } from "~/api/rollouts";
import type { Command, Plan, Rollout } from "~/api/types";
import { adjustableOf, adjustmentOf } from "~/util/board/adjustment";
import { commandText } from "~/util/board/commandText";
import { readForm, writeForm } from "~/util/plan/planForm";
import { whyNotReady } from "~/util/plan/planPreview";
import { parse, planText } from "~/util/plan/planYaml";
import { sentence } from "~/util/words";
import { Dialog } from "../base/Dialog";
import { toast } from "../base/Toasts";
import { Part } from "../plan/FormParts";
import { parallelField, StopPart, TimePart } from "../plan/LimitFields";
import plan from "../plan/Plan.module.css";
import classes from "./Board.module.css";

const read = (text: string) => parse<Plan>(text, () => [], "plan", "Plan");

export function AdjustDialog({ rollout: r, asked, onClose }: { rollout: Rollout; asked: Command; onClose: () => void }) {
  const client = useQueryClient();
  const [words] = useState(() => commandText(asked.name, r));
  // The form is that of a plan's text, so that what it does not show stays as it is.
  const [before] = useState(() => planText(adjustableOf(r.plan) as Plan));
  const [text, setText] = useState(before);
  const parsed = read(text);
  const changes = adjustmentOf(read(before).plan ?? {}, parsed.plan ?? {});
  const give = useMutation({
    mutationFn: (why: string) => adjust(r.id, changes, why),
    onSuccess: (answer) => {
      toast({ kind: "done", title: words.done });
      client.setQueryData(keys.rollout(r.id), answer);
      void client.invalidateQueries({ queryKey: keys.rollouts });
      onClose();
    },
  });
  const fields = {
    form: readForm(text)!,
    faults: parsed.faults,
    disabled: give.isPending,
    onChange: (change: Parameters<typeof writeForm>[1]) => setText(writeForm(text, change)),
  };
  const reason = asked.allowed
    ? (whyNotReady(parsed.faults) ?? (Object.keys(changes).length === 0 ? "Change something first." : null))
    : sentence(asked.reason ?? "It is not possible any more");
  return (
    <Dialog
      title={words.title}
      confirm={words.confirm}
      size="xl"
      why={asked.needs_reason ? "required" : "optional"}
      reason={reason}
      busy={give.isPending}
      error={give.error}
      onConfirm={(why) => give.mutate(why)}
      onClose={onClose}
    >
      <div className={classes.dialog}>
        <span>{words.text}</span>
        <div>
          <Part title="Pace">
            <div className={plan.fields}>{parallelField(fields)}</div>
          </Part>
          <StopPart {...fields} />
          <TimePart {...fields} />
        </div>
      </div>
    </Dialog>
  );
}
