/** Changes of the limits that apply to every rollout. */
import { call } from "./client";
import type { ExposureRule, Freeze } from "./types";

export const setExposure = (rule: Pick<ExposureRule, "enabled" | "percent" | "healthy_hours" | "per">, why: string) =>
  call("put", "/api/v1/exposure", { body: { ...rule, why: why || undefined } });

export type FreezeTimes = Pick<Freeze, "name" | "from" | "to">;

export const createFreeze = (freeze: FreezeTimes, why: string) => call("post", "/api/v1/freezes", { body: { ...freeze, why: why || undefined } });

export const changeFreeze = (freezeId: string, freeze: FreezeTimes, why: string) =>
  call("put", "/api/v1/freezes/{freezeId}", { path: { freezeId }, body: { ...freeze, why: why || undefined } });

export const deleteFreeze = (freezeId: string, why: string) => call("delete", "/api/v1/freezes/{freezeId}", { path: { freezeId }, why });
