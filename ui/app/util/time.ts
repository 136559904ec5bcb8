/** Times in the language and format of the browser's locale. */

const steps: [Intl.RelativeTimeFormatUnit, number][] = [
  ["day", 86_400], ["hour", 3_600], ["minute", 60], ["second", 1],
];

/** relative returns "12 seconds ago" or "in 3 hours". Less than two seconds, past or future, is "just now". */
export function relative(iso: string | null | undefined, now: number, locale?: string): string {
  const at = iso ? Date.parse(iso) : NaN;
  if (Number.isNaN(at)) return "never";
  const seconds = Math.round((at - now) / 1000);
  if (Math.abs(seconds) < 2) return "just now";
  const format = new Intl.RelativeTimeFormat(locale, { numeric: "always", style: "short" });
  for (const [unit, size] of steps) {
    // Future times are rounded: an hour from now should not read "in 59 minutes".
    if (Math.abs(seconds) >= size) return format.format(seconds < 0 ? Math.trunc(seconds / size) : Math.round(seconds / size), unit);
  }
  return "just now";
}

export function exact(iso: string | null | undefined, locale?: string): string {
  const at = iso ? Date.parse(iso) : NaN;
  if (Number.isNaN(at)) return "";
  return new Date(at).toLocaleString(locale, {
    year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
  });
}

export function clock(iso: string | null | undefined, locale?: string): string {
  const at = iso ? Date.parse(iso) : NaN;
  if (Number.isNaN(at)) return "";
  return new Date(at).toLocaleTimeString(locale, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

/** hourMinute is for times within hours. */
export function hourMinute(iso: string | null | undefined, locale?: string): string {
  const at = iso ? Date.parse(iso) : NaN;
  if (Number.isNaN(at)) return "";
  return new Date(at).toLocaleTimeString(locale, { hour: "2-digit", minute: "2-digit" });
}

export function sameDay(a: string, b: string): boolean {
  return new Date(a).toDateString() === new Date(b).toDateString();
}
