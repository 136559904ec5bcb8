/** Times in fields of the type datetime-local, which are in the reader's zone and have no zone themselves. */

export function toLocal(iso: string | undefined): string | undefined {
  if (!iso || Number.isNaN(Date.parse(iso))) return undefined;
  const at = new Date(iso);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

export function fromLocal(local: string | undefined): string | undefined {
  const at = local ? Date.parse(local) : NaN;
  return Number.isNaN(at) ? undefined : new Date(at).toISOString();
}
