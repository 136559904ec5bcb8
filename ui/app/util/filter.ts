/** Which agents a search of the agents page shows. */
import type { Agent } from "~/api/types";
import { hostOf } from "./facts";
import { groupOf, type StatusGroup } from "./status";

export interface AgentFilter {
  /** Words that must all occur in host, id, version, policy or a tag. */
  q?: string;
  status?: readonly StatusGroup[];
  version?: string;
  policy?: string;
  /** Agents whose current or last upgrade came from this action. */
  action?: string;
  ids?: readonly string[];
}

export function filterAgents(agents: readonly Agent[], filter: AgentFilter, policyName: (id: string) => string): Agent[] {
  const words = (filter.q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const groups = filter.status?.length ? new Set(filter.status) : null;
  const ids = filter.ids?.length ? new Set(filter.ids) : null;
  return agents.filter((a) => {
    if (groups && !groups.has(groupOf(a.status))) return false;
    if (ids && !ids.has(a.id)) return false;
    if (filter.version && a.agent.version !== filter.version) return false;
    if (filter.policy && a.policy_id !== filter.policy) return false;
    if (filter.action && a.upgrade_details?.action_id !== filter.action) return false;
    if (words.length === 0) return true;
    const text = [hostOf(a), a.id, a.agent.version, policyName(a.policy_id), ...a.tags].join("\n").toLowerCase();
    return words.every((w) => text.includes(w));
  });
}
