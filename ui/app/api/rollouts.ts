/** Changes of rollouts. Reading them is in queries.ts. */
import type { Adjustment } from "~/util/board/adjustment";
import { ApiError, call } from "./client";
import type { Drift, Plan, Rollout } from "./types";

const at = (rolloutId: string) => ({ path: { rolloutId } });

/** takeOver, here and in Start, is the name of the fleet that agents of the rollout belong to, if they do. */
export const createRollout = async (plan: Plan, takeOver?: string): Promise<Rollout> =>
  (await call("post", "/api/v1/rollouts", { body: { plan, take_over: takeOver } })).item;

/** createForFailed drafts a rollout with the plan of one that has ended, for its hosts that failed. */
export const createForFailed = async (from: string, { why, takeOver }: Pick<Order, "why" | "takeOver">): Promise<Rollout> =>
  (await call("post", "/api/v1/rollouts", { body: { from, failed: true, why: why || undefined, take_over: takeOver } })).item;

export interface Start {
  id: string;
  hash: string;
  acceptDrift: boolean;
  why: string;
  takeOver?: string;
}

export const startRollout = async ({ id, hash, acceptDrift, why, takeOver }: Start): Promise<Rollout> =>
  (
    await call("post", "/api/v1/rollouts/{rolloutId}/start", {
      ...at(id),
      body: { hash, accept_drift: acceptDrift, why: why || undefined, take_over: takeOver },
    })
  ).item;

export interface Order {
  why: string;
  /** The name of the fleet that the hosts belong to, which a rollback takes over. */
  takeOver?: string;
  /** Of a skip: its targets. */
  agents?: readonly string[];
}

/** Runs a command, as the API names it, and returns the rollout or, for a rollback, the new rollout. */
export async function command(r: Rollout, name: string, { why, takeOver, agents = [] }: Order): Promise<Rollout> {
  const body = { why: why || undefined };
  const to = at(r.id);
  switch (name) {
    case "pause":
      return (await call("post", "/api/v1/rollouts/{rolloutId}/pause", { ...to, body })).item;
    case "pause_now":
      return (await call("post", "/api/v1/rollouts/{rolloutId}/pause", { ...to, body: { ...body, now: true } })).item;
    case "resume":
      return (await call("post", "/api/v1/rollouts/{rolloutId}/resume", { ...to, body })).item;
    case "force":
      return (await call("post", "/api/v1/rollouts/{rolloutId}/force", { ...to, body })).item;
    case "approve":
      return (await call("post", "/api/v1/rollouts/{rolloutId}/approve", { ...to, body })).item;
    case "promote":
      return (await call("post", "/api/v1/rollouts/{rolloutId}/promote", { ...to, body })).item;
    case "cancel":
      return (await call("post", "/api/v1/rollouts/{rolloutId}/cancel", { ...to, body })).item;
    case "cancel_now":
      return (await call("post", "/api/v1/rollouts/{rolloutId}/cancel", { ...to, body: { ...body, now: true } })).item;
    case "retry":
      return retryTargets(r.id, [], why);
    case "skip":
      return skipAll(r, agents, why);
    case "rollback_failed":
      return (await call("post", "/api/v1/rollouts/{rolloutId}/rollback", { ...to, body: { ...body, scope: "failed", take_over: takeOver } })).item;
    case "rollback_all":
      return (await call("post", "/api/v1/rollouts/{rolloutId}/rollback", { ...to, body: { ...body, scope: "all", take_over: takeOver } })).item;
    case "delete":
      await call("delete", "/api/v1/rollouts/{rolloutId}", { ...to, query: body });
      return r;
    default:
      throw new Error(`This page does not know the command ${name}.`);
  }
}

/** Gives the rollout these parts of a plan, each as a whole. */
export const adjust = async (id: string, parts: Adjustment, why: string): Promise<Rollout> =>
  (await call("post", "/api/v1/rollouts/{rolloutId}/adjust", { ...at(id), body: { ...parts, why: why || undefined } })).item;

/** The most targets that one call names. */
const MOST_NAMED = 1_000;

async function skipAll(r: Rollout, agents: readonly string[], why: string): Promise<Rollout> {
  let last = r;
  for (let from = 0; from < agents.length; from += MOST_NAMED) last = await skipTargets(r.id, agents.slice(from, from + MOST_NAMED), why);
  return last;
}

/** Without agents: all failed targets. */
export const retryTargets = async (id: string, agents: readonly string[], why: string): Promise<Rollout> =>
  (await call("post", "/api/v1/rollouts/{rolloutId}/retry", { ...at(id), body: { agents: [...agents], why: why || undefined } })).item;

export const skipTargets = async (id: string, agents: readonly string[], why: string): Promise<Rollout> =>
  (await call("post", "/api/v1/rollouts/{rolloutId}/skip", { ...at(id), body: { agents: [...agents], why: why || undefined } })).item;

/** driftOf returns the drift that a refused start reports; undefined for other errors. */
export function driftOf(error: unknown): { drift: Drift; hash: string; targets: number } | undefined {
  if (!(error instanceof ApiError) || error.statusCode !== 409) return undefined;
  const body = error.body as { drift?: Drift; hash?: string; targets?: number } | undefined;
  return body?.drift && body.hash ? { drift: body.drift, hash: body.hash, targets: body.targets ?? 0 } : undefined;
}
