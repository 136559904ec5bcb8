/** What the server makes of a plan that is being written, and the way from a plan to a rollout. */
import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { without } from "~/util/plan/planWithout";
import { fieldNamed } from "~/util/plan/planYaml";
import { ApiError, call } from "./client";
import { keys } from "./queries";
import { createRollout, startRollout } from "./rollouts";
import type { GroupPlan, Plan, Preview, Rollout } from "./types";

/** A preview has this many of its hosts; its numbers are those of all. */
const SAMPLE = 5;

/** What the server answers to a plan: a preview, or everything that it refuses. */
export interface Tried {
  preview?: Preview;
  refusals: ApiError[];
}

const dryRun = async (plan: Plan, signal: AbortSignal): Promise<Preview> =>
  (await call("post", "/api/v1/rollout_preview", { query: { max_items: SAMPLE }, body: { plan }, signal })).item;

/** Each refusal costs a request. A plan with more mistakes is better read from its top. */
const MAX_REFUSALS = 5;

/**
 * tryPlan previews a plan. The server names one field that it refuses, so the plan is tried again
 * without that field, until all that is refused is known.
 */
export async function tryPlan(plan: Plan, signal: AbortSignal): Promise<Tried> {
  const refusals: ApiError[] = [];
  for (let rest = plan; refusals.length < MAX_REFUSALS; ) {
    try {
      const preview = await dryRun(rest, signal);
      return refusals.length > 0 ? { refusals } : { preview, refusals };
    } catch (error) {
      if (!(error instanceof ApiError) || (error.statusCode !== 400 && error.statusCode !== 409)) {
        if (refusals.length > 0) break;
        throw error;
      }
      const field = fieldNamed(error.message);
      // What is missing because it was taken out is not refused.
      if (refusals.some((r) => field === "" || fieldNamed(r.message).startsWith(field))) break;
      refusals.push(error);
      const next = field === "" ? undefined : without(rest, field);
      if (!next) break;
      rest = next;
    }
  }
  return { refusals };
}

/** A preview of what is typed. It is not stored, and no event makes it stale. */
export const planPreviewQuery = (plan: Plan | undefined) =>
  queryOptions({
    queryKey: [...keys.preview, "plan", plan] as const,
    queryFn: ({ signal }) => tryPlan(plan!, signal),
    enabled: plan !== undefined,
    placeholderData: keepPreviousData,
    staleTime: 30_000,
    gcTime: 60_000,
    retry: false,
  });

/** The previews of the members of a group, in their order. */
export const groupPlanPreviewQuery = (plan: GroupPlan | undefined) =>
  queryOptions({
    queryKey: [...keys.preview, "group-plan", plan] as const,
    queryFn: ({ signal }) =>
      Promise.all(plan!.members.map((m) => tryPlan({ ...m.plan, name: m.name, version: plan!.desired_versions[m.name] ?? m.plan.version }, signal))),
    enabled: plan !== undefined,
    placeholderData: keepPreviousData,
    staleTime: 30_000,
    gcTime: 60_000,
    retry: false,
  });

export interface StartPlan {
  plan: Plan;
  /** Of the preview that the operator saw. */
  hash: string;
  why: string;
  takeOver?: string;
}

export interface Started {
  rollout: Rollout;
  /** Why it is still a draft; absent if it runs. */
  kept?: string;
}

/** createAndStart starts exactly what was previewed. If that is no longer possible, the plan is kept as a draft. */
export async function createAndStart({ plan, hash, why, takeOver }: StartPlan): Promise<Started> {
  const rollout = await createRollout(plan, takeOver);
  try {
    const stored = (await call("post", "/api/v1/rollouts/{rolloutId}/preview", { path: { rolloutId: rollout.id }, query: { max_items: 0 } })).item;
    if (stored.hash !== hash) return { rollout, kept: "The fleet has changed since the preview. Look at the new one and start it there." };
    return { rollout: await startRollout({ id: rollout.id, hash, acceptDrift: false, why, takeOver }) };
  } catch (error) {
    return { rollout, kept: error instanceof Error ? error.message : String(error) };
  }
}
