/** Changes of fleets. Reading them is in queries.ts. */
import { fleetText, writtenOf } from "~/util/fleet/fleetYaml";
import { ApiError, call } from "./client";
import type { Fleet, FleetDiff } from "./types";

/**
 * The server writes the status of a fleet while a rollout of it is under way, and any write makes a
 * resourceVersion old. A save is repeated this often while only the status has changed.
 */
const ATTEMPTS = 4;

/** Somebody has changed a fleet since it was read. */
export class ChangedMeanwhile extends Error {
  constructor(readonly fresh: Fleet) {
    super("The fleet was changed while you were editing it. Nothing was saved.");
    this.name = "ChangedMeanwhile";
  }
}

const read = (name: string): Promise<Fleet> => call("get", "/api/v1/fleets/{name}", { path: { name } });

const put = (f: Fleet, from: Fleet, why: string): Promise<Fleet> =>
  call("put", "/api/v1/fleets/{name}", {
    path: { name: f.metadata.name },
    query: { why: why || undefined },
    body: { ...f, metadata: { ...f.metadata, uid: from.metadata.uid, resourceVersion: from.metadata.resourceVersion } },
  });

export const diffFleet = (f: Fleet): Promise<FleetDiff> => call("post", "/api/v1/fleets/{name}/diff", { path: { name: f.metadata.name }, body: f });

export const createFleet = (f: Fleet, why: string): Promise<Fleet> => call("post", "/api/v1/fleets", { query: { why: why || undefined }, body: f });

/** saveFleet stores a fleet that was edited from base, unless somebody has changed it since. */
export async function saveFleet(f: Fleet, base: Fleet, why: string): Promise<Fleet> {
  for (let attempt = 1, from = base; ; attempt++) {
    try {
      return await put(f, from, why);
    } catch (error) {
      if (!isConflict(error)) throw error;
      from = await read(base.metadata.name);
      if (from.metadata.uid !== base.metadata.uid || fleetText(from) !== fleetText(base)) throw new ChangedMeanwhile(from);
      if (attempt === ATTEMPTS) throw error;
    }
  }
}

/** changeSpec changes some fields of the stored spec, whatever the others are. */
export async function changeSpec(name: string, change: Partial<Fleet["spec"]>, why: string): Promise<Fleet> {
  for (let attempt = 1; ; attempt++) {
    const from = await read(name);
    const f = writtenOf(from);
    try {
      return await put({ ...f, spec: { ...f.spec, ...change } }, from, why);
    } catch (error) {
      if (!isConflict(error) || attempt === ATTEMPTS) throw error;
    }
  }
}

export const resumeFleet = (name: string, why: string): Promise<Fleet> =>
  call("post", "/api/v1/fleets/{name}/resume", { path: { name }, body: { why: why || undefined } });

export const deleteFleet = (name: string, why: string): Promise<Fleet> =>
  call("delete", "/api/v1/fleets/{name}", { path: { name }, query: { why: why || undefined } });

const isConflict = (error: unknown): boolean => error instanceof ApiError && error.statusCode === 409;
