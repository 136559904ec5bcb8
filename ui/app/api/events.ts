/** The effects of an event on what the pages have cached, as pure functions. The stream itself is in hooks. */
import type { QueryKey } from "@tanstack/react-query";
import { keys } from "./queries";
import type { Agent, AgentList, FleetEvent } from "./types";

/** Events about one target of a rollout. Their effects on the agent itself come as agent.upgrade. */
const TARGET_EVENTS: readonly string[] = ["agent.upgrade_started", "agent.upgrade_completed", "agent.upgrade_phase_changed"];

const STEPS_WITHIN: readonly string[] = ["rollout.created", "rollout.progress", "rollout.paused", "rollout.resumed"];

export interface Effects {
  /** The current agent, which replaces the one in every cache. */
  patch?: Agent;
  /** Queries to read again soon. */
  stale: QueryKey[];
  /** Queries that many events change, and that are read again at most every few seconds: pages of a list, counts, what waits for a person. */
  slow?: QueryKey[];
}

/** What changes with any agent; an action counts its agents by their progress. */
const COUNTS: QueryKey[] = [keys.agentPages, keys.facets, keys.failures, keys.attention, keys.actions, keys.allTargets, keys.allGrids];

export function effectsOf(event: FleetEvent): Effects {
  const [noun] = event.type.split(".");
  if (TARGET_EVENTS.includes(event.type)) {
    const rollout = event.data?.rollout_id;
    return {
      stale: [],
      slow: typeof rollout === "string" ? [keys.targets(rollout), keys.grid(rollout), keys.rollout(rollout), keys.why] : [keys.rollouts, keys.why],
    };
  }
  switch (noun) {
    case "agent": {
      const agent = event.data?.agent as Agent | undefined;
      const id = agent?.id ?? event.subject;
      const slow = [...COUNTS, keys.agent(id), keys.timeline(id), keys.why];
      if (agent?.id) return { patch: agent, stale: changesPreview(event, agent) ? [keys.preview] : [], slow };
      return { stale: [keys.preview], slow };
    }
    case "action":
      return { stale: [keys.actions], slow: [keys.trails, ...COUNTS] };
    case "package":
      return { stale: [keys.packages, keys.versions, keys.preview] };
    case "key":
      return { stale: [keys.enrollmentKeys, keys.adminKeys, keys.publisherKeys] };
    case "rollout":
      // Only the start and the end of a rollout change which agents it holds.
      // A group shows the progress of its rollouts.
      // So does a fleet.
      return {
        stale: [keys.rollouts, keys.groups, keys.fleets, keys.why, ...(STEPS_WITHIN.includes(event.type) ? [] : [keys.agentPages])],
        slow: [keys.attention, keys.trails],
      };
    case "group":
      return { stale: [keys.groups] };
    case "fleet":
      return { stale: [keys.fleets] };
    case "incident":
      return { stale: [keys.incidents, keys.attention] };
    case "policy":
      return { stale: [keys.policies, keys.actions, keys.trails] };
    case "trust":
      // Signed targets decide which packages hosts install; the enrollment command names the root.
      return { stale: [keys.trust, keys.packages, keys.server, keys.attention] };
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
 * rollouts and commands, so what a page has read about them stays until it is read again.
 */
export function freshOf(old: Agent | undefined, fresh: Agent): Agent {
  if (!old || fresh.desired_version !== undefined) return fresh;
  const components = fresh.components.map((c) => {
    const held = c.name ? old.components.find((o) => o.name === c.name) : undefined;
    if (!held) return c;
    return { ...c, commands: held.commands, ...(held.rollout && { rollout: held.rollout, desired_version: held.desired_version }) };
  });
  return {
    ...fresh,
    components,
    commands: old.commands,
    rollout: old.rollout,
    desired_version: old.desired_version,
    last_healthy_version: fresh.last_healthy_version ?? old.last_healthy_version,
  };
}

/** patchFound replaces agents in the result of a query. Only the server knows which agents match now. */
export function patchFound(list: AgentList, patches: ReadonlyMap<string, Agent>): AgentList {
  if (!list.items.some((a) => patches.has(a.id))) return list;
  return {
    ...list,
    items: list.items.map((old) => {
      const fresh = patches.get(old.id);
      return fresh ? freshOf(old, fresh) : old;
    }),
  };
}
