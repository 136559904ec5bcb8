/** The effects of an event on what the pages have cached, as pure functions. The stream itself is in hooks. */
import type { QueryKey } from "@tanstack/react-query";
import { keys } from "./queries";
import type { Agent, AgentList, FleetEvent } from "./types";
import { groupOf, HIDDEN_GROUPS } from "~/util/status";

/** The event types of the server. EventSource delivers only types that are listened for. */
export const EVENT_TYPES = [
  "agent.enrolled", "agent.status", "agent.upgrade", "agent.watch", "agent.component", "agent.staged", "agent.unenrolled", "agent.policy",
  "action.created", "action.result", "action.cancelled",
  "package.pushed", "package.deleted",
  "key.created", "key.revoked", "policy.created", "policy.updated", "policy.deleted",
  "rollout.created", "rollout.started", "rollout.progress", "rollout.paused", "rollout.resumed", "rollout.completed", "rollout.failed",
  "rollout.cancelled", "rollout.rollback_initiated", "rollout.rollback_completed",
  "group.created", "group.started", "group.progress", "group.paused", "group.resumed", "group.completed", "group.partial", "group.failed",
  "group.cancelled", "group.rollback_initiated", "group.rollback_completed",
  "agent.upgrade_started", "agent.upgrade_completed", "agent.upgrade_phase_changed",
  "incident.changed", "fleet.changed",
] as const;

/** Events about one target of a rollout. Their effects on the agent itself come as agent.upgrade. */
const TARGET_EVENTS: readonly string[] = ["agent.upgrade_started", "agent.upgrade_completed", "agent.upgrade_phase_changed"];

const STEPS_WITHIN: readonly string[] = ["rollout.created", "rollout.progress", "rollout.paused", "rollout.resumed"];

export interface Effects {
  /** The current agent, which replaces the one in every cache. */
  patch?: Agent;
  /** Queries to read again. */
  stale: QueryKey[];
}

export function effectsOf(event: FleetEvent): Effects {
  const [noun] = event.type.split(".");
  if (TARGET_EVENTS.includes(event.type)) {
    const rollout = event.data?.rollout_id;
    return { stale: [typeof rollout === "string" ? keys.targets(rollout) : keys.rollouts, keys.why] };
  }
  switch (noun) {
    case "agent": {
      const agent = event.data?.agent as Agent | undefined;
      if (agent?.id) return { patch: agent, stale: changesPreview(event, agent) ? [keys.preview] : [] };
      return { stale: [keys.agents, keys.preview] };
    }
    case "action":
      return { stale: [keys.actions] };
    case "package":
      return { stale: [keys.packages, keys.versions, keys.preview] };
    case "key":
      // The enrollment command contains the publisher keys.
      return { stale: [keys.enrollmentKeys, keys.adminKeys, keys.publisherKeys, keys.server] };
    case "rollout":
      // Only the start and the end of a rollout change which agents it holds.
      // A group shows the progress of its rollouts.
      // So does a fleet.
      return { stale: [keys.rollouts, keys.groups, keys.fleets, keys.why, ...(STEPS_WITHIN.includes(event.type) ? [] : [keys.agents])] };
    case "group":
      return { stale: [keys.groups] };
    case "fleet":
      return { stale: [keys.fleets] };
    case "incident":
      return { stale: [keys.incidents] };
    case "policy":
      return { stale: [keys.policies, keys.actions] };
    default:
      return { stale: [] };
  }
}

/** Progress within an upgrade changes no preview; its start and its end do. */
function changesPreview(event: FleetEvent, agent: Agent): boolean {
  const state = agent.upgrade_details?.state;
  return event.type !== "agent.upgrade" || !state || ["UPG_REQUESTED", "UPG_SCHEDULED", "UPG_FAILED", "UPG_ROLLBACK"].includes(state);
}

/**
 * freshOf returns the agent of an event as caches must hold it. Agents in events lack their
 * rollouts, so what a page has read about them stays until it is read again.
 */
export function freshOf(old: Agent | undefined, fresh: Agent): Agent {
  if (!old || fresh.desired_version !== undefined) return fresh;
  const components = fresh.components.map((c) => {
    const held = c.name ? old.components.find((o) => o.name === c.name && o.rollout) : undefined;
    return held ? { ...c, rollout: held.rollout, desired_version: held.desired_version } : c;
  });
  return { ...fresh, components, rollout: old.rollout, desired_version: old.desired_version, last_healthy_version: fresh.last_healthy_version ?? old.last_healthy_version };
}

/** patchFound replaces agents in the result of a query. Only the server knows which agents match now. */
export function patchFound(list: AgentList, patches: ReadonlyMap<string, Agent>): AgentList {
  if (!list.items.some((a) => patches.has(a.id))) return list;
  return { ...list, items: list.items.map((old) => { const fresh = patches.get(old.id); return fresh ? freshOf(old, fresh) : old; }) };
}

/**
 * patchList puts agents into a list: known ones in their place, new ones first. It removes agents
 * that a list without inactive agents must not show. Without a change it returns the same list, so
 * that nothing is redrawn.
 */
export function patchList(list: AgentList, patches: ReadonlyMap<string, Agent>, showInactive: boolean): AgentList {
  if (patches.size === 0) return list;
  const hidden = (a: Agent) => !showInactive && HIDDEN_GROUPS.includes(groupOf(a.status));
  const left = new Map(patches);
  let removed = 0;
  const items: Agent[] = [];
  for (const old of list.items) {
    const fresh = left.get(old.id);
    left.delete(old.id);
    if (fresh && hidden(fresh)) removed++;
    else items.push(fresh ? freshOf(old, fresh) : old);
  }
  const added = [...left.values()].filter((a) => !hidden(a));
  if (added.length === 0 && removed === 0 && left.size === patches.size) return list;
  return { ...list, items: [...added, ...items], total: list.total + added.length - removed };
}
