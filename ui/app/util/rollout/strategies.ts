/** What the forms and lists say of each strategy, in the order in which they offer them. */
import type { StrategyKind } from "~/api/types";

export const strategies: Record<StrategyKind, { label: string; text: string }> = {
  canary: { label: "Canary", text: "A few hosts first, then batches." },
  rolling: { label: "Rolling", text: "Batch after batch." },
  rings: { label: "Rings", text: "By a label of the hosts, ring 0 first." },
  lockstep: { label: "Lockstep", text: "All switch together, or none does." },
  all_at_once: { label: "All at once", text: "Every host as soon as it can." },
};

/** The strategies as choices of a form. */
export const strategyChoices = Object.entries(strategies).map(([value, says]) => ({ value, ...says }));
