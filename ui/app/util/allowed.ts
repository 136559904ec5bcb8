/**
 * What can be asked of an agent, with the reason where it cannot. Mirrors only
 * what makes a dialog pointless; the server's preview decides the rest.
 */
import type { Agent } from "~/api/types";
import { canUpgrade } from "./facts";
import { sentence } from "./words";

export function whyNotUpgrade(agent: Agent): string | null {
  if (agent.status === "unenrolled" || !agent.active) return "It has left the fleet.";
  if (agent.status === "unenrolling") return "It is leaving the fleet.";
  if (agent.status === "uninstalled") return "It was uninstalled from its host.";
  if (agent.rollout) return lockedBy(agent);
  if (!canUpgrade(agent)) return "It cannot replace itself: it runs in a container or was not installed.";
  return null;
}

/** The server decides; its words are shown as they are. */
export function whyNotRollback(agent: Agent): string | null {
  if (agent.rollout) return lockedBy(agent);
  if (agent.rollback?.available) return null;
  return sentence(agent.rollback?.reason ?? "This server does not say whether it could go back");
}

export function whyNotUnenroll(agent: Agent): string | null {
  if (agent.status === "unenrolled" || !agent.active) return "It has left the fleet already.";
  return null;
}

function lockedBy(agent: Agent): string {
  return `The rollout “${agent.rollout?.name}” has it. Skip it there, or wait until the rollout is over.`;
}
