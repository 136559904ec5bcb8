/** The forms of the guard rails: their values and their errors. */
import type { Exposure, ExposureRule, Freeze, Rollout } from "~/api/types";
import { duration } from "~/util/time";

export interface ExposureForm {
  enabled: boolean;
  percent: string;
  hours: string;
  /** A label and its percent on each line: "site 20". */
  per: string;
}

export const MAX_LABELS = 4;

export function formOf(rule: ExposureRule): ExposureForm {
  return {
    enabled: rule.enabled,
    percent: String(rule.percent),
    hours: String(rule.healthy_hours),
    per: (rule.per ?? []).map((p) => `${p.label} ${p.percent}`).join("\n"),
  };
}

/** ruleOf reads the form. An error belongs to a field. */
export function ruleOf(form: ExposureForm): {
  rule?: Pick<ExposureRule, "enabled" | "percent" | "healthy_hours" | "per">;
  errors: Partial<Record<keyof ExposureForm, string>>;
} {
  const errors: Partial<Record<keyof ExposureForm, string>> = {};
  const percent = number(form.percent);
  if (percent === undefined || percent <= 0 || percent > 100) errors.percent = "A number above 0, up to 100.";
  const hours = number(form.hours);
  if (hours === undefined || hours < 0) errors.hours = "A number of hours, 0 or more.";
  const per: NonNullable<ExposureRule["per"]> = [];
  for (const line of form.per
    .split("\n")
    .map((l) => l.trim())
    .filter(Boolean)) {
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

/** freezeOrder lists those in force first, then the coming ones, the next first, then the past ones, the last first. */
export function freezeOrder(list: readonly Freeze[], now: number): Freeze[] {
  const rank = { now: 0, coming: 1, over: 2 };
  return [...list].sort((a, b) => {
    const [x, y] = [freezeState(a, now), freezeState(b, now)];
    if (x !== y) return rank[x] - rank[y];
    return x === "over" ? Date.parse(b.to) - Date.parse(a.to) : Date.parse(a.from) - Date.parse(b.from);
  });
}

/** freezeTime says how long until a freeze begins or ends. */
export function freezeTime(f: Freeze, now: number): string {
  const state = freezeState(f, now);
  if (state === "over") return "";
  return state === "now" ? `ends in ${duration(Date.parse(f.to) - now)}` : `begins in ${duration(Date.parse(f.from) - now)}`;
}

/** localField is a time as a datetime-local field has it, in the browser's zone. */
export function localField(iso: string | undefined): string {
  if (!iso) return "";
  const at = new Date(iso);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** exposureText describes the rule in a sentence. */
export function exposureText(rule: ExposureRule): string {
  if (!rule.enabled) return "No limit: a plan alone decides how fast a version spreads.";
  const per = (rule.per ?? []).map((p) => `${p.percent} % of each ${p.label}`);
  return `At most ${[`${rule.percent} % of the fleet`, ...per].join(" and ")} on a version with fewer than ${rule.healthy_hours} healthy agent-hours.`;
}

export interface Lock {
  policyId: string;
  rollout: Rollout;
}

const ACTIVE: readonly string[] = ["running", "paused", "cancelling"];

/** locksOf returns which policies are held by which active rollouts. Those that have ended keep the list of what they held. */
export const locksOf = (rollouts: readonly Rollout[]): Lock[] =>
  rollouts.filter((r) => ACTIVE.includes(r.state)).flatMap((rollout) => (rollout.policies ?? []).map((policyId) => ({ policyId, rollout })));

export interface Use {
  exposure: Exposure;
  rollouts: Rollout[];
}

/** usesOf returns how much of the budget each version uses that an active rollout brings, the fullest first. */
export function usesOf(rollouts: readonly Rollout[]): Use[] {
  const out = new Map<string, Use>();
  for (const r of rollouts) {
    if (!r.exposure || !ACTIVE.includes(r.state)) continue;
    const known = out.get(r.exposure.version);
    if (known) known.rollouts.push(r);
    else out.set(r.exposure.version, { exposure: r.exposure, rollouts: [r] });
  }
  return [...out.values()].sort((a, b) => share(b.exposure) - share(a.exposure));
}

/** share is the used part of the budget, from 0 to 1. */
export const share = (e: Pick<Exposure, "exposed" | "limit">): number => (e.limit > 0 ? Math.min(1, e.exposed / e.limit) : e.exposed > 0 ? 1 : 0);

/** Whether a version has run long enough that the limit no longer applies to it. */
export const isProven = (e: Exposure): boolean => e.healthy_hours >= e.needed_hours;
