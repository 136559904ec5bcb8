/** A preview of a plan in words and numbers, for the page on which the plan is written. */
import type { Plan, Preview, PreviewBatch, PreviewCause } from "~/api/types";
import { durationText } from "~/util/rollout/rolloutText";
import { plural } from "~/util/words";
import { type Fault, isWithin } from "./planYaml";

export const willOf = (p: Preview): number => p.target_count ?? p.targets.length;
export const wontOf = (p: Preview): number => p.skipped_count ?? p.skipped.length;

/** headlineOf sums a preview up in a line. */
export function headlineOf(p: Preview): string {
  const will = willOf(p);
  if (will === 0) return `No host would be upgraded: ${plural(wontOf(p), "host is", "hosts are")} left out`;
  return `${plural(will, "host")} in ${plural(p.batches.length, "batch", "batches")}, about ${durationText(p.estimate)}${wontOf(p) > 0 ? `; ${plural(wontOf(p), "host")} left out` : ""}`;
}

/** causesOf returns the reasons why hosts are left out, the most frequent first, and then the remarks on those that are upgraded. */
export function causesOf(p: Preview): PreviewCause[] {
  return [...(p.causes ?? [])].sort((a, b) => Number(a.will) - Number(b.will) || b.count - a.count);
}

/** A part of the bar of batches: one batch, or several in a row if there are too many to draw. */
export interface Segment {
  from: number;
  to: number;
  kind: PreviewBatch["kind"];
  size: number;
}

export function segmentsOf(batches: readonly PreviewBatch[], most = 80): Segment[] {
  const each = Math.max(1, Math.ceil(batches.length / most));
  const out: Segment[] = [];
  for (const b of batches) {
    const last = out.at(-1);
    if (last && last.kind === b.kind && last.to - last.from + 1 < each) {
      last.to = b.index;
      last.size += b.size;
    } else out.push({ from: b.index, to: b.index, kind: b.kind, size: b.size });
  }
  return out;
}

/** The start of more hosts, or of more of the fleet, is confirmed by typing. */
const TYPED_FROM = 100;
const TYPED_SHARE = 0.5;

/** typedFor returns what to type before a rollout to so many hosts; undefined if a click is enough. */
export function typedFor(hosts: number, fleet: number | undefined): string | undefined {
  return hosts > TYPED_FROM || (fleet !== undefined && fleet > 0 && hosts / fleet > TYPED_SHARE) ? `upgrade ${hosts}` : undefined;
}

const nouns: Record<string, string> = {
  name: "a name",
  version: "the version",
  select: "the hosts",
  strategy: "the strategy",
  failure_policy: "the failure policy",
  desired_versions: "the versions",
  members: "the members",
};

/** whyNotReady returns why a plan cannot be saved: what is wrong, or else what is missing. */
export function whyNotReady(faults: readonly Fault[]): string | null {
  const wrong = faults.filter((f) => !f.missing);
  if (wrong.length > 0) return `Correct ${plural(wrong.length, "error")} first.`;
  const missing = faults.map((f) => nouns[f.field] ?? f.field);
  if (missing.length === 0) return null;
  return `Still missing: ${missing.length > 1 ? `${missing.slice(0, -1).join(", ")} and ${missing.at(-1)}` : missing[0]}.`;
}

/** faultOf returns the first error at one of these fields or below it. */
export function faultOf(faults: readonly Fault[], fields: readonly string[]): string | undefined {
  const f = faults.find((one) => !one.missing && fields.some((field) => isWithin(one.field, field)));
  if (!f) return undefined;
  // The label of the field names it already.
  const rest = f.text.startsWith(f.field) ? f.text.slice(f.field.length).trim() : f.text;
  return rest
    .split("\n")[0]!
    .replace(/^is /, "Is ")
    .replace(/^[a-z]/, (c) => c.toUpperCase());
}

/** versionsFor returns the published versions of a component, or of the agents, newest first as the server lists them. */
export function versionsFor(packages: readonly { version: string; component?: string }[] | undefined, component: string): string[] {
  return [...new Set((packages ?? []).filter((p) => (p.component ?? "") === component).map((p) => p.version))];
}

/** stopsAt says what the plan does about failures, for the confirmation. */
export function stopsAt(plan: Plan): string {
  const f = plan.failure;
  const rules = [f?.count ? plural(f.count, "failure") : "", f?.percent ? `more than ${f.percent} % failures` : ""].filter(Boolean);
  if (plan.strategy.force_continue) return "Failures do not stop it.";
  return rules.length > 0 ? `It pauses at ${rules.join(" or ")}.` : "";
}
