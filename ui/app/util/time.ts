/** Lengths of time in the words of the console, dates in the format of the browser's locale. */

const steps: [string, number][] = [
  ["day", 86_400],
  ["h", 3_600],
  ["min", 60],
  ["s", 1],
];

/** Making a format takes a browser longer than drawing a row, and a table has a hundred times that change each second. */
const formats = new Map<string, Intl.DateTimeFormat>();

function format(at: number, locale: string | undefined, options: Intl.DateTimeFormatOptions): string {
  const key = `${locale} ${Object.entries(options).join(" ")}`;
  const f = formats.get(key) ?? new Intl.DateTimeFormat(locale, options);
  formats.set(key, f);
  return f.format(at);
}

/** relative returns "12 s ago", "in 3 h" or "2 days ago". Less than two seconds, past or future, is "just now". */
export function relative(iso: string | null | undefined, now: number): string {
  const at = iso ? Date.parse(iso) : NaN;
  if (Number.isNaN(at)) return "never";
  const seconds = Math.round((at - now) / 1000);
  if (Math.abs(seconds) < 2) return "just now";
  for (const [unit, size] of steps) {
    if (Math.abs(seconds) < size) continue;
    // Future times are rounded: an hour from now should not read "in 59 min".
    const count = seconds < 0 ? Math.floor(-seconds / size) : Math.round(seconds / size);
    const words = `${count.toLocaleString()} ${unit === "day" && count > 1 ? "days" : unit}`;
    return seconds < 0 ? `${words} ago` : `in ${words}`;
  }
  return "just now";
}

export function exact(iso: string | null | undefined, locale?: string): string {
  const at = iso ? Date.parse(iso) : NaN;
  if (Number.isNaN(at)) return "";
  return format(at, locale, {
    year: "numeric",
    month: "short",
    day: "numeric",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
  });
}

export function clock(iso: string | null | undefined, locale?: string): string {
  const at = iso ? Date.parse(iso) : NaN;
  if (Number.isNaN(at)) return "";
  return format(at, locale, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

/** hourMinute is for times within hours. */
export function hourMinute(iso: string | null | undefined, locale?: string): string {
  const at = iso ? Date.parse(iso) : NaN;
  if (Number.isNaN(at)) return "";
  return format(at, locale, { hour: "2-digit", minute: "2-digit" });
}

export function sameDay(a: string, b: string): boolean {
  return new Date(a).toDateString() === new Date(b).toDateString();
}

const DAY_MS = 86_400_000;

/** exactWithZone is exact with the name of the zone, since hosts and operators are in several. */
export function exactWithZone(iso: string | null | undefined, locale?: string): string {
  const at = iso ? Date.parse(iso) : NaN;
  if (Number.isNaN(at)) return "";
  return format(at, locale, {
    year: "numeric",
    month: "short",
    day: "numeric",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    timeZoneName: "short",
  });
}

/** minuteWithZone is exactWithZone to the minute. */
export function minuteWithZone(iso: string, locale?: string): string {
  const at = Date.parse(iso);
  if (Number.isNaN(at)) return "";
  return new Date(at).toLocaleString(locale, { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short" });
}

/** inTable is relative within a day. Beyond it is a date, since "43 days ago" helps nobody. */
export function inTable(iso: string | null | undefined, now: number, locale?: string): string {
  const at = iso ? Date.parse(iso) : NaN;
  if (Number.isNaN(at)) return "";
  if (Math.abs(at - now) < DAY_MS) return relative(iso, now);
  const sameYear = new Date(at).getFullYear() === new Date(now).getFullYear();
  return format(at, locale, { year: sameYear ? undefined : "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
}

/** shortTime is inTable with few letters: "12 s ago", "14:05", "18 Nov", "18 Nov 2024". */
export function shortTime(iso: string | null | undefined, now: number, locale?: string): string {
  const at = iso ? Date.parse(iso) : NaN;
  if (Number.isNaN(at)) return "";
  const ms = now - at;
  if (ms >= 0 && ms < DAY_MS) {
    const s = Math.floor(ms / 1000);
    return s < 5 ? "just now" : s < 60 ? `${s} s ago` : s < 3600 ? `${Math.floor(s / 60)} min ago` : `${Math.floor(s / 3600)} h ago`;
  }
  if (ms < 0 && -ms < DAY_MS) return hourMinute(iso, locale);
  const sameYear = new Date(at).getFullYear() === new Date(now).getFullYear();
  return format(at, locale, { year: sameYear ? undefined : "numeric", month: "short", day: "numeric" });
}

/** duration is a length of time in its two largest units: "1 h 12 min", "48 s". */
export function duration(ms: number): string {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  const m = Math.floor(s / 60);
  if (m < 60) return s % 60 ? `${m} min ${s % 60} s` : `${m} min`;
  const h = Math.floor(m / 60);
  if (h < 48) return m % 60 ? `${h} h ${m % 60} min` : `${h} h`;
  const d = Math.floor(h / 24);
  return h % 24 ? `${d} d ${h % 24} h` : `${d} d`;
}
