import { Progress } from "@mantine/core";
import { IconArrowRight, IconArrowBackUp, IconCircleArrowUp, IconClock, IconX } from "@tabler/icons-react";
import type { Agent } from "~/api/types";
import { canUpgrade } from "~/util/facts";
import { phaseOf, type Phase } from "~/util/phase";
import { compareVersions } from "~/util/version";
import { useClock } from "./Now";
import classes from "./VersionCell.module.css";

/** The version that an agent runs, and the phase of its upgrade. */
export function VersionCell({ agent, newest }: { agent: Agent; newest?: string }) {
  const now = useClock();
  const phase = phaseOf(agent, now);
  const moving = phase.kind === "running" || phase.kind === "scheduled";
  const newer = phase.kind === "none" && newest && compareVersions(newest, agent.agent.version) > 0;
  return (
    <div className={classes.cell}>
      <div className={classes.line}>
        <span className="mono">{agent.agent.version || "unknown"}</span>
        {moving && phase.target && phase.target !== agent.agent.version ? (
          <>
            <IconArrowRight size={13} aria-label="to" className={classes.quiet} />
            <span className="mono">{phase.target}</span>
          </>
        ) : null}
        {newer && canUpgrade(agent) ? (
          <span className={classes.newer}><IconCircleArrowUp size={13} aria-hidden /> {newest} available</span>
        ) : null}
      </div>
      <PhaseLine phase={phase} />
    </div>
  );
}

export function PhaseLine({ phase }: { phase: Phase }) {
  switch (phase.kind) {
    case "none":
      return null;
    case "running":
    case "scheduled":
      return (
        <>
          <div className={classes.phase} data-kind={phase.warning ? "warning" : phase.kind}>
            {phase.kind === "scheduled" ? <IconClock size={13} aria-hidden /> : null}
            <span>{phase.text}</span>
          </div>
          {phase.kind === "running" ? (
            <Progress
              className={classes.progress}
              size={3}
              value={phase.percent ?? 100}
              animated={phase.percent === undefined}
              striped={phase.percent === undefined}
              data-unknown={phase.percent === undefined || undefined}
              color="var(--updating)"
              aria-label={phase.text}
            />
          ) : null}
          {phase.warning ? <div className={classes.phase} data-kind="warning"><span title={phase.warning}>{phase.warning}</span></div> : null}
        </>
      );
    case "rolled_back":
    case "failed":
      return (
        <div className={classes.phase} data-kind={phase.kind} title={phase.text}>
          {phase.kind === "failed" ? <IconX size={13} aria-hidden /> : <IconArrowBackUp size={13} aria-hidden />}
          <span>{phase.text}</span>
        </div>
      );
  }
}
