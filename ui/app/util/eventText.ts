/** Events of one agent as sentences. */
import type { Agent } from "~/api/types";
import { isRequest, type SeenEvent } from "~/api/history";
import { STEPS } from "./phase";
import { targetLabel } from "./rolloutText";

export function eventText(e: SeenEvent): string {
  const to = e.target ? ` to ${e.target}` : "";
  switch (e.type) {
    case "agent.enrolled":
      return "Enrolled";
    case "agent.unenrolled":
      return "Unenrolled";
    case "agent.status":
      return e.status ? `Status became ${e.status}` : "Status changed";
    case "agent.policy":
      return e.reason ? `Could not apply its policy: ${e.reason}` : "Acknowledged its policy";
    case "agent.upgrade":
      return upgradeText(e, to);
    case "agent.watch":
      return watchText(e);
    case "agent.component":
      return componentText(e);
    case "agent.staged":
      return e.version ? `Has staged ${e.version}` : "Has no staged version any more";
    case "agent.upgrade_started":
      return "A rollout offered it an upgrade";
    case "agent.upgrade_phase_changed":
      return `State in its rollout: ${targetWord(e.stage, "changed")}`;
    case "agent.upgrade_completed":
      return `Ended in its rollout: ${targetWord(e.stage, "ended")}${e.reason ? `: ${e.reason}` : ""}`;
    case "action.result":
      return e.reason ? `Acknowledged the action with an error: ${e.reason}` : "Acknowledged the action";
    default:
      return e.type;
  }
}

function upgradeText(e: SeenEvent, to: string): string {
  if (isRequest(e)) return "Upgrade requested";
  if (!e.state) return e.version ? `Upgrade ended, runs ${e.version}` : "Upgrade changed";
  if (e.state === "UPG_ROLLBACK") return `Rolled back${e.target ? ` from ${e.target}` : ""}${e.reason ? `: ${e.reason}` : ""}`;
  if (e.state === "UPG_FAILED") return `Upgrade${to} failed${e.reason ? `: ${e.reason}` : ""}`;
  if (e.state === "UPG_SCHEDULED") return `Upgrade${to} scheduled`;
  if (e.state === "UPG_REQUESTED") return `Upgrade${to} requested`;
  return STEPS.find((s) => s.state === e.state)?.doing ?? e.state;
}

function componentText(e: SeenEvent): string {
  const name = e.component ?? "A component";
  const to = e.target ? ` to ${e.target}` : "";
  // The event of an order has only the action.
  if (!e.state && (e.upgrade === "started" || e.action && !e.status)) return `${name}: upgrade${to} requested`;
  if (!e.state) return `${name}: ${[e.version, e.status].filter(Boolean).join(", ") || "changed"}`;
  // As componentPhaseOf.
  if (e.state === "UPG_ROLLBACK") return `${name}: ${upgradeText(e, to).replace(/^Rolled/, "Rolling")}`;
  return `${name}: ${upgradeText(e.upgrade === "rolled_back" ? { ...e, state: "UPG_ROLLBACK" } : e, to)}`;
}

function targetWord(state: string | undefined, otherwise: string): string {
  return (targetLabel as Record<string, string>)[state ?? ""]?.toLowerCase() ?? otherwise;
}

const stages: Record<string, (target: string) => string> = {
  watching: (target) => `The watcher is watching ${target}`,
  rolling_back: (target) => `The watcher rolls back from ${target}`,
  rolled_back: (target) => `The watcher rolled back from ${target}`,
  rollback_failed: (target) => `The watcher could not roll back from ${target}`,
  committed: (target) => `The watcher committed ${target}`,
};

function watchText(e: SeenEvent): string {
  const words = (e.stage && stages[e.stage]?.(e.target ?? "the new version")) || "The watcher reported";
  return e.reason && e.stage !== "watching" && e.stage !== "committed" ? `${words}: ${e.reason}` : words;
}

/** Events from the agent's record, which are older than those this browser received. */
export function lastingEvents(agent: Agent): SeenEvent[] {
  const out: SeenEvent[] = [{ seq: -1, at: agent.enrolled_at, type: "agent.enrolled" }];
  if (agent.upgraded_at) out.push({ seq: -2, at: agent.upgraded_at, type: "agent.upgrade", version: agent.agent.version });
  if (agent.unenrolled_at) out.push({ seq: -3, at: agent.unenrolled_at, type: "agent.unenrolled" });
  return out;
}

/** mergeEvents merges both lists, newest first, without duplicates. */
export function mergeEvents(seen: readonly SeenEvent[], lasting: readonly SeenEvent[]): SeenEvent[] {
  const oldest = seen.length > 0 ? Date.parse(seen[seen.length - 1]!.at) : Infinity;
  return [...seen, ...lasting.filter((e) => Date.parse(e.at) < oldest)].sort((a, b) => Date.parse(b.at) - Date.parse(a.at) || b.seq - a.seq);
}
