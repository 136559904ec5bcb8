import {
  IconAlertTriangle, IconCircleCheck, IconCircleMinus, IconGhost, IconLoader2, IconMoonStars, IconPlugConnectedX, IconTrash,
  type Icon,
} from "@tabler/icons-react";
import type { AgentStatus } from "~/api/types";
import { groupOf, statusLabel, type StatusGroup } from "~/util/status";
import classes from "./StatusBadge.module.css";

/** A shape for each group, since many people cannot tell the colours apart. */
const icons: Record<StatusGroup, Icon> = {
  healthy: IconCircleCheck,
  unhealthy: IconAlertTriangle,
  updating: IconLoader2,
  offline: IconPlugConnectedX,
  orphaned: IconGhost,
  uninstalled: IconTrash,
  inactive: IconMoonStars,
  unenrolled: IconCircleMinus,
};

export function StatusIcon({ group, size = 14 }: { group: StatusGroup; size?: number }) {
  const Icon = icons[group];
  return <Icon size={size} aria-hidden className={classes.icon} data-group={group} stroke={2} />;
}

export function StatusBadge({ status }: { status: AgentStatus }) {
  const group = groupOf(status);
  return (
    <span className={classes.badge} data-group={group} title={`Status: ${status}`}>
      <StatusIcon group={group} />
      {statusLabel(status)}
    </span>
  );
}
