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

export const hostOf = (a: Agent): string =>
  dig(a.local_metadata, "host", "hostname") || dig(a.local_metadata, "host", "name") || a.id;

export const osOf = (a: Agent): string =>
  dig(a.local_metadata, "os", "name") || dig(a.local_metadata, "os", "platform") || dig(a.local_metadata, "os", "family");

export const osVersionOf = (a: Agent): string => dig(a.local_metadata, "os", "version");

export const archOf = (a: Agent): string =>
  dig(a.local_metadata, "host", "architecture") || dig(a.local_metadata, "os", "arch");

export const platformOf = (a: Agent): string => [osOf(a), archOf(a)].filter(Boolean).join(" · ");

/** False only if the agent reports it: an agent in a container cannot replace itself. */
export const canUpgrade = (a: Agent): boolean => dig(a.local_metadata, "elastic", "agent", "upgradeable") !== "false";

/** flatten turns nested metadata into dotted names, sorted. */
export function flatten(tree: unknown, prefix = ""): [string, string][] {
  if (tree === null || tree === undefined) return [];
  if (typeof tree !== "object") return [[prefix, String(tree)]];
  if (Array.isArray(tree)) return tree.length === 0 ? [] : [[prefix, tree.map((v) => (typeof v === "object" ? JSON.stringify(v) : String(v))).join(", ")]];
  return Object.entries(tree as Record<string, unknown>)
    .sort(([a], [b]) => a.localeCompare(b))
    .flatMap(([name, value]) => flatten(value, prefix === "" ? name : `${prefix}.${name}`));
}
