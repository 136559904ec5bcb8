/** Changes of rollouts, incidents and guard rails. Reading them is in queries.ts. */
import type { Command } from "~/util/rollout";
import { ApiError, call } from "./client";
import type { Drift, ExposureRule, Plan, Preview, Rollout } from "./types";

const at = (rolloutId: string) => ({ path: { rolloutId } });

/** takeOver, here and in Start, is the name of the fleet that agents of the rollout belong to, if they do. */
export const createRollout = async (plan: Plan, takeOver?: string): Promise<Rollout> => (await call("post", "/api/v1/rollouts", { body: { plan, take_over: takeOver } })).item;

export const dryRun = async (plan: Plan): Promise<Preview> => (await call("post", "/api/v1/rollout_preview", { body: { plan } })).item;

export interface Start {
  id: string;
  hash: string;
  acceptDrift: boolean;
  why: string;
  takeOver?: string;
}

export const startRollout = async ({ id, hash, acceptDrift, why, takeOver }: Start): Promise<Rollout> =>
  (await call("post", "/api/v1/rollouts/{rolloutId}/start", { ...at(id), body: { hash, accept_drift: acceptDrift, why: why || undefined, take_over: takeOver } })).item;

/** Runs a command and returns the rollout or, for a rollback, the new rollout. */
export async function command(r: Rollout, what: Command, why: string, takeOver?: string): Promise<Rollout> {
  const body = { why: why || undefined };
  const to = at(r.id);
  switch (what) {
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
    case "cancel":
      return (await call("post", "/api/v1/rollouts/{rolloutId}/cancel", { ...to, body })).item;
    case "retry":
      return retryTargets(r.id, [], why);
    case "rollback_failed":
      return (await call("post", "/api/v1/rollouts/{rolloutId}/rollback", { ...to, body: { ...body, scope: "failed", take_over: takeOver } })).item;
    case "rollback_all":
      return (await call("post", "/api/v1/rollouts/{rolloutId}/rollback", { ...to, body: { ...body, scope: "all", take_over: takeOver } })).item;
    case "delete":
      await call("delete", "/api/v1/rollouts/{rolloutId}", { ...to, query: body });
      return r;
    case "start":
      throw new Error("a start presents the hash of a preview");
  }
}

/** Without agents: all failed targets. */
export const retryTargets = async (id: string, agents: string[], why: string): Promise<Rollout> =>
  (await call("post", "/api/v1/rollouts/{rolloutId}/retry", { ...at(id), body: { agents, why: why || undefined } })).item;

export const skipTargets = async (id: string, agents: string[], why: string): Promise<Rollout> =>
  (await call("post", "/api/v1/rollouts/{rolloutId}/skip", { ...at(id), body: { agents, why: why || undefined } })).item;

/** driftOf returns the drift that a refused start reports; undefined for other errors. */
export function driftOf(error: unknown): { drift: Drift; hash: string; targets: number } | undefined {
  if (!(error instanceof ApiError) || error.statusCode !== 409) return undefined;
  const body = error.body as { drift?: Drift; hash?: string; targets?: number } | undefined;
  return body?.drift && body.hash ? { drift: body.drift, hash: body.hash, targets: body.targets ?? 0 } : undefined;
}

export const ackIncident = (incidentId: string, why: string) =>
  call("post", "/api/v1/incidents/{incidentId}/ack", { path: { incidentId }, body: { why: why || undefined } });

export const resolveIncident = (incidentId: string, why: string) =>
  call("post", "/api/v1/incidents/{incidentId}/resolve", { path: { incidentId }, body: { why: why || undefined } });

export const setExposure = (rule: Pick<ExposureRule, "enabled" | "percent" | "healthy_hours" | "per">, why: string) =>
  call("put", "/api/v1/exposure", { body: { ...rule, why: why || undefined } });

export const createFreeze = (freeze: { name: string; from: string; to: string; why?: string }) => call("post", "/api/v1/freezes", { body: freeze });

export const deleteFreeze = (freezeId: string, why: string) =>
  call("delete", "/api/v1/freezes/{freezeId}", { path: { freezeId }, query: { why: why || undefined } });
