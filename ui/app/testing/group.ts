/** A group for tests: running, with a member that is done and one that is not, and the given changes. */
import type { Group } from "~/api/types";

export function group(change: Partial<Group> = {}): Group {
  return {
    id: "g1",
    state: "running",
    generation: 1,
    created_at: "2026-01-02T10:00:00Z",
    created_by: "ann",
    plan: {
      name: "Autumn",
      failure_policy: "manual",
      desired_versions: { db: "1.1.0", web: "2.0.0" },
      members: ["db", "web"].map((name) => ({ name, plan: { name, strategy: { kind: "rolling" } } })),
    },
    members: [
      { name: "db", state: "completed", rollout_id: "g1-1" },
      { name: "web", state: "running", rollout_id: "g1-2" },
    ],
    ...change,
  };
}

export const stop = (kind: NonNullable<Group["stop"]>["kind"], member?: string): Pick<Group, "state" | "stop"> => ({
  state: "paused",
  stop: { kind, member, text: "3 of 5 failed", by: "muster", at: "2026-01-02T11:00:00Z" },
});
