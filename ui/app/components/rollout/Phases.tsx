import { useQuery } from "@tanstack/react-query";
import { IN_FLIGHT_SHOWN, inFlightQuery } from "~/api/queries";
import type { Rollout } from "~/api/types";
import { STEPS } from "~/util/phase";
import { countBy, inFlightOf } from "~/util/rolloutCounts";
import classes from "./Rollout.module.css";

/** The phases of the agents in flight, as they report them. */
export function Phases({ rollout: r }: { rollout: Rollout }) {
  const n = inFlightOf(r.counts);
  const { data } = useQuery(inFlightQuery(r.id, n > 0));
  if (n === 0 || !data) return null;
  return (
    <div role="group" aria-label="Phases of the agents in flight">
      <div className={classes.note}>Phases of {data.total > IN_FLIGHT_SHOWN ? `the first ${IN_FLIGHT_SHOWN.toLocaleString()} of ` : ""}{data.total.toLocaleString()} in flight</div>
      <div className={classes.phases}>
        {countBy(data.items, (t) => t.phase || t.state).map(([phase, count]) => (
          <span key={phase} className={classes.badge} data-tone="moving">{count.toLocaleString()} <RolloutPhase phase={phase} /></span>
        ))}
      </div>
    </div>
  );
}

const states: Record<string, string> = { offered: "Offered, not started yet", upgrading: "Upgrading", verifying: "Being watched" };

export function RolloutPhase({ phase }: { phase: string }) {
  return <span title={phase}>{STEPS.find((s) => s.state === phase)?.doing ?? states[phase] ?? phase}</span>;
}
