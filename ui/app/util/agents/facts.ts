/** Facts an agent sends about its host; all of them may be missing. */
import type { Agent } from "~/api/types";

function dig(tree: unknown, ...path: string[]): string {
  let at: unknown = tree;
  for (const name of path) {
    if (typeof at !== "object" || at === null) return "";
    at = (at as Record<string, unknown>)[name];
  }
  return typeof at === "string" ? at : typeof at === "number" || typeof at === "boolean" ? String(at) : "";
}

export const hostOf = (a: Agent): string => dig(a.local_metadata, "host", "hostname") || dig(a.local_metadata, "host", "name") || a.id;

export const osOf = (a: Agent): string =>
  dig(a.local_metadata, "os", "name") || dig(a.local_metadata, "os", "platform") || dig(a.local_metadata, "os", "family");

export const osVersionOf = (a: Agent): string => dig(a.local_metadata, "os", "version");

export const archOf = (a: Agent): string => dig(a.local_metadata, "host", "architecture") || dig(a.local_metadata, "os", "arch");

/** True if the agent reports that it runs without root's rights. */
export const isUnprivileged = (a: Agent): boolean => dig(a.local_metadata, "elastic", "agent", "unprivileged") === "true";
