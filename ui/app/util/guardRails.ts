/** The forms of the guard rails: their values and their errors. */
import type { ExposureRule, Freeze } from "~/api/types";

export interface ExposureForm {
  enabled: boolean;
  percent: string;
  hours: string;
  /** A label and its percent on each line: "site 20". */
  per: string;
}

export const MAX_LABELS = 4;

export function formOf(rule: ExposureRule): ExposureForm {
  return { enabled: rule.enabled, percent: String(rule.percent), hours: String(rule.healthy_hours), per: (rule.per ?? []).map((p) => `${p.label} ${p.percent}`).join("\n") };
}

/** ruleOf reads the form. An error belongs to a field. */
export function ruleOf(form: ExposureForm): { rule?: Pick<ExposureRule, "enabled" | "percent" | "healthy_hours" | "per">; errors: Partial<Record<keyof ExposureForm, string>> } {
  const errors: Partial<Record<keyof ExposureForm, string>> = {};
  const percent = number(form.percent);
  if (percent === undefined || percent <= 0 || percent > 100) errors.percent = "A number above 0, up to 100.";
  const hours = number(form.hours);
  if (hours === undefined || hours < 0) errors.hours = "A number of hours, 0 or more.";
  const per: NonNullable<ExposureRule["per"]> = [];
  for (const line of form.per.split("\n").map((l) => l.trim()).filter(Boolean)) {
    const [, label, share] = /^(\S+)\s+(\S+?)\s*%?$/.exec(line) ?? [];
    const n = number(share ?? "");
    if (!label || n === undefined || n <= 0 || n > 100) errors.per = `“${line}” is not a label and a percent, such as “site 20”.`;
    else if (per.some((p) => p.label === label)) errors.per = `${label} is given twice.`;
    else per.push({ label, percent: n });
  }
  if (per.length > MAX_LABELS) errors.per = `At most ${MAX_LABELS} labels.`;
  if (Object.keys(errors).length > 0) return { errors };
  return { rule: { enabled: form.enabled, percent: percent!, healthy_hours: hours!, per }, errors };
}

function number(text: string): number | undefined {
  const n = Number(text.trim());
  return text.trim() === "" || !Number.isFinite(n) ? undefined : n;
}

export interface FreezeForm {
  name: string;
  /** Local times, as a datetime-local field has them. */
  from: string;
  to: string;
}

/** whyNotFreeze returns null if the freeze can be added. */
export function whyNotFreeze(form: FreezeForm, now: number): string | null {
  if (form.name.trim() === "") return "Enter a name.";
  const [from, to] = [Date.parse(form.from), Date.parse(form.to)];
  if (Number.isNaN(from) || Number.isNaN(to)) return "Enter a start and an end.";
  if (to <= from) return "It ends before it starts.";
  if (to <= now) return "It has ended already.";
  return null;
}

export function freezeState(f: Freeze, now: number): "now" | "coming" | "over" {
  if (Date.parse(f.to) <= now) return "over";
  return Date.parse(f.from) <= now ? "now" : "coming";
}

/** exposureText describes the rule in a sentence. */
export function exposureText(rule: ExposureRule): string {
  if (!rule.enabled) return "No limit: a plan alone decides how fast a version spreads.";
  const per = (rule.per ?? []).map((p) => `${p.percent} % of each ${p.label}`);
  return `At most ${[`${rule.percent} % of the fleet`, ...per].join(" and ")} on a version with fewer than ${rule.healthy_hours} healthy agent-hours.`;
}
