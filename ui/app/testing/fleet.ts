/** A fleet for tests: rolled out and ready, with the given changes of its status, spec and conditions. */
import type { Fleet, FleetCondition } from "~/api/types";
import { CONDITION_TYPES } from "~/util/fleet/fleet";

export const HASH = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b";

export function fleet(
  status: Partial<NonNullable<Fleet["status"]>> = {},
  spec: Partial<Fleet["spec"]> = {},
  conditions: Partial<FleetCondition>[] = [],
): Fleet {
  return {
    apiVersion: "muster.dev/v1alpha2",
    kind: "Fleet",
    metadata: { name: "web", labels: { team: "web" }, uid: "u1", resourceVersion: "7", generation: 2, creationTimestamp: "2026-01-02T10:00:00Z" },
    spec: { selector: { policies: ["web"] }, agent: { version: "1.1.0" }, ...spec },
    status: {
      observedGeneration: 2,
      requestedRolloutHash: HASH,
      lastCompletedRolloutHash: HASH,
      agents: 4,
      versions: { agent: { "1.1.0": 4 } },
      rollout: { id: "fleet-web-1", version: "1.1.0", state: "completed" },
      conditions: CONDITION_TYPES.map((type) => ({
        type,
        status: type === "Ready" ? "True" : "False",
        reason: "Why",
        message: `why ${type}`,
        lastTransitionTime: "2026-01-02T11:00:00Z",
        ...conditions.find((c) => c.type === type),
      })),
      ...status,
    },
  };
}
