import type { Matching } from "~/util/agents/chosen";
import type { OverLimit } from "~/util/agents/removalLimit";
import type { UpgradeCall } from "~/util/upgrade/upgradeForm";
import { call } from "./client";

/**
 * startRollback rolls agents back, named ones or all matching, with one action for each version.
 * With forward it also moves those whose other version is a later one. Here and below takeOver is the name of the fleet that the agents belong to, if they do.
 */
export async function startRollback(agents: string[] | Matching, { takeOver, forward }: { takeOver?: string; forward?: true } = {}): Promise<string[]> {
  if (!Array.isArray(agents)) {
    return (
      await call("post", "/api/fleet/agents/bulk_rollback", { body: { agents: agents.kuery, includeInactive: agents.inactive, take_over: takeOver, forward } })
    ).actionIds;
  }
  if (agents.length === 1) {
    return [
      (
        await call("post", "/api/fleet/agents/{agentId}/rollback", {
          path: { agentId: agents[0]! },
          body: takeOver || forward ? { take_over: takeOver, forward } : undefined,
        })
      ).actionId,
    ];
  }
  return (await call("post", "/api/fleet/agents/bulk_rollback", { body: { agents, includeInactive: true, take_over: takeOver, forward } })).actionIds;
}

/** startUnenroll unenrols agents, named ones or all matching; with revoke at once, without their acknowledgement. With overLimit also more than the removal limit. */
export async function startUnenroll(
  agents: string[] | Matching,
  { revoke, force, overLimit }: { revoke: boolean; force: boolean; overLimit?: OverLimit },
): Promise<void> {
  if (!Array.isArray(agents)) {
    await call("post", "/api/fleet/agents/bulk_unenroll", { body: { agents: agents.kuery, includeInactive: agents.inactive, revoke, force, ...overLimit } });
  } else if (agents.length === 1) {
    await call("post", "/api/fleet/agents/{agentId}/unenroll", { path: { agentId: agents[0]! }, body: { revoke, force } });
  } else {
    await call("post", "/api/fleet/agents/bulk_unenroll", { body: { agents, includeInactive: true, revoke, force, ...overLimit } });
  }
}

export async function startUpgrade(plan: UpgradeCall, takeOver?: string): Promise<string | undefined> {
  if (plan.kind === "stage") return (await call("post", "/api/v1/stage", { body: plan.body })).actionId;
  if (plan.kind === "one") {
    return (await call("post", "/api/fleet/agents/{agentId}/upgrade", { path: { agentId: plan.agentId }, body: { ...plan.body, take_over: takeOver } }))
      .actionId;
  }
  if (plan.kind === "component") {
    return (await call("post", "/api/v1/components/{name}/upgrade", { path: { name: plan.component }, body: { ...plan.body, take_over: takeOver } })).actionId;
  }
  return (await call("post", "/api/fleet/agents/bulk_upgrade", { body: { ...plan.body, take_over: takeOver } })).actionId;
}
