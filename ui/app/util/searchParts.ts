/** Parts of the searches in addresses: values that are missing or unknown are left out. */

export function textOf(value: unknown): string | undefined {
  return (typeof value === "string" || typeof value === "number") && value !== "" ? String(value) : undefined;
}

/** The values of a list that are known. */
export function someOf<T extends string>(value: unknown, known: readonly T[]): T[] | undefined {
  const list = Array.isArray(value) ? value : [value];
  const some = known.filter((k) => list.includes(k));
  return some.length > 0 ? some : undefined;
}

/** A page from the second on; the first one is the default. */
export const pageOf = (value: unknown): number | undefined => (typeof value === "number" && Number.isInteger(value) && value > 1 ? value : undefined);

export const timeOf = (value: unknown): string | undefined => (typeof value === "string" && !Number.isNaN(Date.parse(value)) ? value : undefined);

export function compact<T extends object>(object: T): T {
  return Object.fromEntries(Object.entries(object).filter(([, v]) => v !== undefined)) as T;
}
