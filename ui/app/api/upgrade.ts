import type { UpgradeCall } from "~/util/upgradeForm";
import { call } from "./client";

export async function startUpgrade(plan: UpgradeCall): Promise<string | undefined> {
  if (plan.kind === "one") {
    return (await call("post", "/api/fleet/agents/{agentId}/upgrade", { path: { agentId: plan.agentId }, body: plan.body })).actionId;
  }
  return (await call("post", "/api/fleet/agents/bulk_upgrade", { body: plan.body })).actionId;
}
