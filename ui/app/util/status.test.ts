import { expect, test } from "vitest";
import type { AgentStatus } from "~/api/types";
import { agent } from "~/testing/agent";
import { countGroups, GROUPS, groupOf, statusLabel } from "./status";

test("every status of the API belongs to the group in which the API counts it", () => {
  const groups: Record<AgentStatus, string> = {
    online: "healthy", error: "unhealthy", degraded: "unhealthy", offline: "offline", inactive: "inactive",
    unenrolled: "unenrolled", uninstalled: "uninstalled", orphaned: "orphaned",
    updating: "updating", enrolling: "updating", unenrolling: "updating",
  };
  for (const [status, group] of Object.entries(groups)) expect(groupOf(status as AgentStatus)).toBe(group);
});

test("an unknown status of a newer server counts as unhealthy", () => {
  expect(groupOf("quarantined" as AgentStatus)).toBe("unhealthy");
  expect(statusLabel("quarantined" as AgentStatus)).toBe("Unhealthy");
});

test("the counts of all groups add up to the fleet", () => {
  const fleet = [agent({ status: "online" }), agent({ status: "error" }), agent({ status: "degraded" }), agent({ status: "enrolling" })];
  const counts = countGroups(fleet);
  expect(counts).toMatchObject({ healthy: 1, unhealthy: 2, updating: 1, offline: 0 });
  expect(GROUPS.reduce((n, g) => n + counts[g], 0)).toBe(fleet.length);
});
