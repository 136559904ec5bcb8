/**
 * Why an action on an agent is not possible. Checks only what would make a dialog pointless; the
 * server's preview decides the rest.
 */
import type { Agent } from "~/api/types";
import { canUpgrade } from "./facts";
import { sentence } from "./words";

export function whyNotUpgrade(agent: Agent): string | null {
  if (agent.status === "unenrolled" || !agent.active) return "It is unenrolled.";
  if (agent.status === "unenrolling") return "It is unenrolling.";
  if (agent.status === "uninstalled") return "It was uninstalled from its host.";
  if (agent.rollout) return lockedBy(agent);
  if (!canUpgrade(agent)) return "It cannot replace itself: it runs in a container or was not installed.";
  return null;
}

/** The server decides; its reason is shown as it is. */
export function whyNotRollback(agent: Agent): string | null {
  if (agent.rollout) return lockedBy(agent);
  if (agent.rollback?.available) return null;
  return sentence(agent.rollback?.reason ?? "This server does not report whether it can be rolled back");
}

export function whyNotUnenroll(agent: Agent): string | null {
  if (agent.status === "unenrolled" || !agent.active) return "It is unenrolled already.";
  return null;
}

function lockedBy(agent: Agent): string {
  return `The rollout “${agent.rollout?.name}” includes it. Skip it there, or wait until the rollout ends.`;
}
