/** A rollout for tests: running, with five targets and the given changes. */
import type { Counts, Plan, Preview, PreviewTarget, Rollout, Target } from "~/api/types";

export function counts(change: Partial<Counts> = {}): Counts {
  const c: Counts = {
    total: 0,
    pending: 0,
    held: 0,
    offered: 0,
    upgrading: 0,
    verifying: 0,
    succeeded: 0,
    failed: 0,
    rolled_back: 0,
    withdrawn: 0,
    skipped: 0,
    expired: 0,
    cancelled: 0,
    ...change,
  };
  return { ...c, total: Object.entries(c).reduce((sum, [name, n]) => (name === "total" || name === "refused" ? sum : sum + n), 0) };
}

export function rollout(change: Partial<Omit<Rollout, "plan" | "counts">> & { plan?: Partial<Plan>; counts?: Partial<Counts> } = {}): Rollout {
  const { plan, counts: c, ...rest } = change;
  return {
    id: "r1",
    state: "running",
    generation: 1,
    created_at: "2026-01-02T10:00:00Z",
    created_by: "ann",
    plan: { name: "Spring", version: "1.1.0", strategy: { kind: "rolling" }, ...plan },
    counts: counts(c ?? { pending: 5 }),
    ...rest,
  };
}

export function target(state: Target["state"]): Target {
  return { rollout_id: "r1", agent_id: "a1", hostname: "web-01", batch: 0, order: 0, ring: 0, state, from: "1.0.0", to: "1.1.0", attempts: 1 };
}

/** A preview of targets on web-01 to web-<n>, each with configuration files of the server. */
export function previewWithConfig(n: number): Preview {
  const targets = Array.from(
    { length: n },
    (_, i): PreviewTarget => ({
      agent_id: `a${i + 1}`,
      hostname: `web-${String(i + 1).padStart(2, "0")}`,
      policy: "default",
      from: "1.0.0",
      to: "1.1.0",
      config: `c${i + 1}`,
      batch: 0,
      ring: 0,
      online: true,
      bytes: 1,
    }),
  );
  return {
    hash: "sha256:abc",
    rollout_id: "r1",
    component: "web",
    at: "2026-01-02T10:00:00Z",
    targets,
    skipped: [],
    batches: [],
    sites: [],
    offline: 0,
    at_least: "1h0m0s",
    estimate: "2h0m0s",
    warnings: [],
  };
}
