/** What of a plan may change while its rollout is under way. */
import type { Plan } from "~/api/types";

const PARTS = ["limits", "failure", "health", "pace"] as const;

export type Adjustment = Partial<Pick<Plan, (typeof PARTS)[number]>>;

/** adjustableOf returns the parts that may change. */
export const adjustableOf = (plan: Plan): Adjustment => Object.fromEntries(PARTS.filter((p) => plan[p]).map((p) => [p, plan[p]]));

/** adjustmentOf returns the parts that differ, whole: the server replaces each as a whole. One that is empty has the defaults. */
export const adjustmentOf = (before: Adjustment, after: Adjustment): Adjustment =>
  Object.fromEntries(PARTS.filter((p) => JSON.stringify(before[p] ?? {}) !== JSON.stringify(after[p] ?? {})).map((p) => [p, after[p] ?? {}]));
