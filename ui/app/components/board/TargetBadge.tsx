import { type Icon, IconCircleMinus, IconClockX } from "@tabler/icons-react";
import type { Target } from "~/api/types";
import { phaseOf } from "~/util/grid/gridClass";
import { Badge, ProgressBadge } from "../base/Badge";

const icons: Partial<Record<Target["state"], Icon>> = { expired: IconClockX };

/** The state of a target, in the words of an agent's progress. */
export function TargetBadge({ target: t }: { target: Target }) {
  const { word, progress } = phaseOf(t.state, t.progress);
  return progress ? (
    <ProgressBadge progress={{ state: progress, version: t.to }} />
  ) : (
    <Badge tone="away" icon={icons[t.state] ?? IconCircleMinus}>
      {word}
    </Badge>
  );
}
