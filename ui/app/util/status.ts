/** The statuses of the API, and their groups. */
import type { Agent, AgentStatus } from "~/api/types";

export const GROUPS = [
  "healthy", "unhealthy", "updating", "offline", "orphaned", "uninstalled", "inactive", "unenrolled",
] as const;
export type StatusGroup = (typeof GROUPS)[number];

/** The same grouping as getAgentStatus has in the OpenAPI document. */
const groupOfStatus: Record<AgentStatus, StatusGroup> = {
  online: "healthy",
  error: "unhealthy",
  degraded: "unhealthy",
  updating: "updating",
  enrolling: "updating",
  unenrolling: "updating",
  offline: "offline",
  orphaned: "orphaned",
  uninstalled: "uninstalled",
  inactive: "inactive",
  unenrolled: "unenrolled",
};

export function groupOf(status: AgentStatus): StatusGroup {
  // A newer server may have a status that this page does not know; it counts as unhealthy.
  return groupOfStatus[status] ?? "unhealthy";
}

/** statusesOf returns the statuses of a group, as in the API. */
export function statusesOf(group: StatusGroup): AgentStatus[] {
  return (Object.keys(groupOfStatus) as AgentStatus[]).filter((s) => groupOfStatus[s] === group);
}

export const groupLabel: Record<StatusGroup, string> = {
  healthy: "Healthy",
  unhealthy: "Unhealthy",
  updating: "Updating",
  offline: "Offline",
  orphaned: "Orphaned",
  uninstalled: "Uninstalled",
  inactive: "Inactive",
  unenrolled: "Unenrolled",
};

export function statusLabel(status: AgentStatus): string {
  if (status === "enrolling") return "Enrolling";
  if (status === "unenrolling") return "Unenrolling";
  return groupLabel[groupOf(status)];
}

/** The groups that the server omits by default. */
export const HIDDEN_GROUPS: readonly StatusGroup[] = ["inactive", "unenrolled"];

export function countGroups(agents: readonly Agent[]): Record<StatusGroup, number> {
  const counts = Object.fromEntries(GROUPS.map((g) => [g, 0])) as Record<StatusGroup, number>;
  for (const agent of agents) counts[groupOf(agent.status)]++;
  return counts;
}

export function isGroup(word: unknown): word is StatusGroup {
  return typeof word === "string" && (GROUPS as readonly string[]).includes(word);
}
