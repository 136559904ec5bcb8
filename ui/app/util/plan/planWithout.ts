/** Plans without one of their fields. */

/** without returns a copy of a plan that lacks a field, such as limits.per[0].max; undefined if it has none. */
export function without<T extends object>(plan: T, field: string): T | undefined {
  const copy = structuredClone(plan);
  const path = field.split(/[.[\]]+/).filter(Boolean);
  const last = path.pop();
  let at: unknown = copy;
  for (const key of path) at = typeof at === "object" && at !== null ? (at as Record<string, unknown>)[key] : undefined;
  if (last === undefined || typeof at !== "object" || at === null || !(last in at)) return undefined;
  if (Array.isArray(at)) at.splice(Number(last), 1);
  else delete (at as Record<string, unknown>)[last];
  return copy;
}
