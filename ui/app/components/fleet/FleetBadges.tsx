import { type Icon, IconArrowUpCircle, IconCircleDashed, IconHandStop, IconPlayerPause } from "@tabler/icons-react";
import type { Fleet, FleetCondition } from "~/api/types";
import { type ConditionType, conditionOf, holding, isObserved } from "~/util/fleet/fleet";
import type { Tone } from "~/util/state";
import { Badge } from "../base/Badge";
import classes from "./Fleet.module.css";

const tones: Record<ConditionType, Tone> = { Ready: "ok", Progressing: "move", Promoting: "move", Degraded: "bad", Stalled: "wait" };
const icons: Partial<Record<ConditionType, Icon>> = { Promoting: IconArrowUpCircle, Stalled: IconHandStop };

/** Whether all hosts run what the spec says. */
export function ReadyBadge({ fleet: f, strong }: { fleet: Fleet; strong?: boolean }) {
  const ready = conditionOf(f, "Ready");
  if (!ready || ready.status === "Unknown")
    return (
      <Badge tone="away" strong={strong} title={ready?.message ?? "The server has not looked at it yet"}>
        Unknown
      </Badge>
    );
  if (ready.status === "False")
    return (
      <Badge tone="wait" icon={IconCircleDashed} strong={strong} title={ready.message}>
        Not ready
      </Badge>
    );
  if (!isObserved(f))
    return (
      <Badge tone="away" strong={strong} title="The server has not acted on the newest spec yet">
        Changed
      </Badge>
    );
  return (
    <Badge tone="ok" strong={strong} title={ready.message}>
      Ready
    </Badge>
  );
}

/** The conditions that hold, and that the spec is paused. */
export function FleetBadges({ fleet: f }: { fleet: Fleet }) {
  const held = holding(f);
  if (held.length === 0 && !f.spec.paused) return null;
  return (
    <span className={classes.badges}>
      {f.spec.paused ? (
        <Badge tone="wait" icon={IconPlayerPause} title="spec.paused is true">
          Paused
        </Badge>
      ) : null}
      {held.map((t) => (
        <Badge key={t} tone={tones[t]} icon={icons[t]} title={conditionOf(f, t)?.message ?? ""}>
          {t}
        </Badge>
      ))}
    </span>
  );
}

const answers: Record<FleetCondition["status"], string> = { True: "Yes", False: "No", Unknown: "Unknown" };

export function StatusOf({ condition: c }: { condition: FleetCondition }) {
  const title = `Status: ${c.status}`;
  if (c.status === "True")
    return (
      <Badge tone={tones[c.type] ?? "away"} icon={icons[c.type]} title={title}>
        {answers.True}
      </Badge>
    );
  return (
    <Badge tone={c.type === "Ready" && c.status === "False" ? "wait" : "away"} icon={IconCircleDashed} title={title}>
      {answers[c.status] ?? c.status}
    </Badge>
  );
}
