import { IconAlertTriangle, IconCheck, IconClock } from "@tabler/icons-react";
import type { UpgradeDetails } from "~/api/types";
import { phaseTimes, type SeenEvent } from "~/api/history";
import { stepsOf } from "~/util/steps";
import { clock, exact } from "~/util/time";
import classes from "./PhaseStepper.module.css";

interface Props {
  details: UpgradeDetails;
  startedAt: string | null;
  seen: readonly SeenEvent[];
}

/** The phases of one upgrade: done, current and to come. */
export function PhaseStepper({ details, startedAt, seen }: Props) {
  const times = phaseTimes(seen, details.action_id);
  if (startedAt && !times.has("UPG_REQUESTED")) times.set("UPG_REQUESTED", startedAt);
  return (
    <ol className={classes.steps} aria-label={`Upgrade to ${details.target_version}`}>
      {stepsOf(details).map((step) => {
        const at = times.get(step.state);
        return (
          <li key={step.state} className={classes.step} data-place={step.place} aria-current={step.place === "now" ? "step" : undefined}>
            <span className={classes.mark} aria-hidden>
              {step.place === "done" ? <IconCheck size={13} stroke={3} /> : step.place === "failed" ? <IconAlertTriangle size={13} /> : step.place === "now" ? <IconClock size={13} /> : null}
            </span>
            <span className={classes.title}>{step.title}<span className="sr-only">, {placeWords[step.place]}</span></span>
            <span className={classes.at}>
              {at && step.place !== "todo" ? <time dateTime={at} title={exact(at)}>{clock(at)}</time> : step.place === "todo" ? "" : "–"}
            </span>
          </li>
        );
      })}
    </ol>
  );
}

const placeWords = { done: "done", now: "under way", failed: "failed here", todo: "not started" } as const;
