import { IconAlertTriangle, IconArrowUpCircle, IconCircleCheck, IconCircleDashed, IconHandStop, IconLoader2, IconPlayerPause, type Icon } from "@tabler/icons-react";
import type { Fleet, FleetCondition } from "~/api/types";
import { conditionOf, holding, isObserved, type ConditionType } from "~/util/fleet";
import { Word, type Tone } from "../rollout/RolloutBadge";
import classes from "./Fleet.module.css";

/** A shape for each condition, since many people cannot tell the colours apart. */
const conditions: Record<ConditionType, [Tone, Icon]> = {
  Ready: ["good", IconCircleCheck],
  Progressing: ["moving", IconLoader2],
  Promoting: ["moving", IconArrowUpCircle],
  Degraded: ["bad", IconAlertTriangle],
  Stalled: ["warn", IconHandStop],
};

/** Whether all agents run what the spec says. */
export function ReadyBadge({ fleet: f }: { fleet: Fleet }) {
  const ready = conditionOf(f, "Ready");
  if (!ready || ready.status === "Unknown") return <Word of={["quiet", IconCircleDashed]} word="Unknown" title={ready?.message ?? "The server has not looked at it yet"} />;
  if (ready.status === "False") return <Word of={["warn", IconCircleDashed]} word="Not ready" title={ready.message} />;
  if (!isObserved(f)) return <Word of={["quiet", IconCircleDashed]} word="Changed" title="The server has not acted on the newest spec yet" />;
  return <Word of={conditions.Ready} word="Ready" title={ready.message} />;
}

/** The conditions that hold, and that the spec is paused. */
export function FleetBadges({ fleet: f }: { fleet: Fleet }) {
  const held = holding(f);
  if (held.length === 0 && !f.spec.paused) return null;
  return (
    <span className={classes.badges}>
      {f.spec.paused ? <Word of={["warn", IconPlayerPause]} word="Paused" title="spec.paused is true" /> : null}
      {held.map((t) => <Word key={t} of={conditions[t]} word={t} title={conditionOf(f, t)?.message ?? ""} />)}
    </span>
  );
}

const answers: Record<FleetCondition["status"], string> = { True: "Yes", False: "No", Unknown: "Unknown" };

export function StatusOf({ condition: c }: { condition: FleetCondition }) {
  const [tone, icon] = conditions[c.type] ?? ["quiet", IconCircleDashed];
  const title = `Status: ${c.status}`;
  if (c.status === "True") return <Word of={[tone, icon]} word={answers.True} title={title} />;
  return <Word of={[c.type === "Ready" && c.status === "False" ? "warn" : "quiet", IconCircleDashed]} word={answers[c.status] ?? c.status} title={title} />;
}
