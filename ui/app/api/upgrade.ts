import type { Matching } from "~/util/matching";
import type { UpgradeCall } from "~/util/upgradeForm";
import { call } from "./client";

/** startRollback asks agents to go back, named ones or all that match; each version they go back to is an action of its own. */
export async function startRollback(agents: string[] | Matching): Promise<string[]> {
  if (!Array.isArray(agents)) {
    return (await call("post", "/api/fleet/agents/bulk_rollback", { body: { agents: agents.kuery, includeInactive: agents.inactive } })).actionIds;
  }
  if (agents.length === 1) {
    return [(await call("post", "/api/fleet/agents/{agentId}/rollback", { path: { agentId: agents[0]! } })).actionId];
  }
  return (await call("post", "/api/fleet/agents/bulk_rollback", { body: { agents, includeInactive: true } })).actionIds;
}

export async function startUpgrade(plan: UpgradeCall): Promise<string | undefined> {
  if (plan.kind === "one") {
    return (await call("post", "/api/fleet/agents/{agentId}/upgrade", { path: { agentId: plan.agentId }, body: plan.body })).actionId;
  }
  return (await call("post", "/api/fleet/agents/bulk_upgrade", { body: plan.body })).actionId;
}
