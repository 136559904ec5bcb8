import type { UpgradeCall } from "~/util/upgradeForm";
import { call } from "./client";

/** startRollback asks agents to go back; each version they go back to is an action of its own. */
export async function startRollback(agents: string[]): Promise<string[]> {
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
