/** An agent's timeline in words, and the phases of an upgrade with their lengths. */
import type { ProgressState, TimelineEntry, TimelinePhase } from "~/api/types";
import { isOver, progressTone, progressWord, type Tone } from "~/util/state";

/** The entries that have phases. */
export const isUpgrade = (e: Pick<TimelineEntry, "kind">): boolean => e.kind === "upgrade" || e.kind === "rollback";

/** entryTitle is what an entry is about, without the result of an upgrade. */
export function entryTitle(e: TimelineEntry): string {
  const of = e.component ? `${e.component} ` : "";
  if (e.kind === "rollback") return `Rollback of ${of || "the agent "}to ${e.to ?? "the version before"}`;
  if (e.kind === "upgrade") {
    const verb = e.from || !e.component ? "Upgrade" : "Installation";
    return `${verb} of ${of || "the agent "}to ${e.to ?? "another version"}`;
  }
  return e.text ?? kindWord[e.kind] ?? e.kind;
}

const kindWord: Record<string, string> = {
  enrolled: "The host enrolled.",
  staged: "It staged a version.",
  source: "A source of packages has failed.",
  policy: "It applied its policy.",
  unenrolled: "It was unenrolled.",
  diagnostics: "It sent diagnostics.",
  change: "It was changed.",
};

/** The tone of an entry: that of the upgrade's state; other entries are quiet. */
export const entryTone = (e: TimelineEntry): Tone => (isUpgrade(e) && e.state ? progressTone(e.state) : "away");

export interface Phase extends TimelinePhase {
  /** How long it has lasted; absent of the state in which the upgrade has ended, and of a time that is not known. */
  ms?: number;
  /** Where it begins and how long it is, as shares of the whole upgrade. */
  from: number;
  share: number;
  /** It lasts still. */
  open: boolean;
}

/** phasesOf returns the phases of an upgrade, each until the next one; the last one of an upgrade under way lasts until now. */
export function phasesOf(e: Pick<TimelineEntry, "phases" | "ended_at">, now: number): Phase[] {
  const phases = withoutRepeats(e.phases ?? []);
  const first = phases[0];
  if (!first) return [];
  const start = Date.parse(first.at);
  const end = e.ended_at ? Date.parse(e.ended_at) : isOver(phases[phases.length - 1]!.state) ? Date.parse(phases[phases.length - 1]!.at) : now;
  const whole = Math.max(1, end - start);
  return phases.map((p, i) => {
    const at = Date.parse(p.at);
    const next = phases[i + 1];
    const over = isOver(p.state);
    const until = next ? Date.parse(next.at) : end;
    const ms = over ? undefined : Math.max(0, until - at);
    return { ...p, ms, from: clamp((at - start) / whole), share: clamp((ms ?? 0) / whole), open: !next && !over && !e.ended_at };
  });
}

/** An agent may report a phase more than once; an attempt that failed has a text, and stays. */
function withoutRepeats(phases: readonly TimelinePhase[]): TimelinePhase[] {
  return phases.filter((p, i) => i === 0 || p.state !== phases[i - 1]!.state || (p.text ?? "") !== (phases[i - 1]!.text ?? ""));
}

const clamp = (x: number): number => Math.min(1, Math.max(0, x));

/** lengthOf is how long an upgrade took, or has taken until now. */
export function lengthOf(e: Pick<TimelineEntry, "at" | "ended_at">, now: number): number {
  return Math.max(0, (e.ended_at ? Date.parse(e.ended_at) : now) - Date.parse(e.at));
}

/** stateWords is the state of an upgrade in an entry; an end names what it means for the host. */
export function stateWords(e: Pick<TimelineEntry, "state" | "from">): string {
  if (!e.state) return "";
  if (e.state === "rolled_back" && e.from) return `Rolled back to ${e.from}`;
  return progressWord[e.state] ?? e.state;
}

export interface Day<T> {
  day: string;
  items: T[];
}

/** byDay groups what is sorted by time, in the reader's zone. */
export function byDay<T extends { at: string }>(items: readonly T[], now: number, locale?: string): Day<T>[] {
  const days: Day<T>[] = [];
  for (const item of items) {
    const day = dayOf(item.at, now, locale);
    const last = days[days.length - 1];
    if (last?.day === day) last.items.push(item);
    else days.push({ day, items: [item] });
  }
  return days;
}

function dayOf(iso: string, now: number, locale?: string): string {
  const date = new Date(iso);
  if (date.toDateString() === new Date(now).toDateString()) return "Today";
  if (date.toDateString() === new Date(now - 86_400_000).toDateString()) return "Yesterday";
  const sameYear = date.getFullYear() === new Date(now).getFullYear();
  return date.toLocaleDateString(locale, { weekday: "short", day: "numeric", month: "long", year: sameYear ? undefined : "numeric" });
}

/** The states that an upgrade passes on its way, for the stepper; a rollback needs no package. */
const UPGRADE_STEPS: readonly ProgressState[] = ["sent", "downloading", "installing", "restarting", "watching", "committed"];
const ROLLBACK_STEPS: readonly ProgressState[] = ["sent", "restarting", "watching", "committed"];

export interface Step {
  state: ProgressState;
  place: "done" | "now" | "failed" | "todo";
  at?: string;
  ms?: number;
}

/** stepsOf returns the way of an upgrade: what it has passed, with times, where it is, and what is to come. */
export function stepsOf(state: ProgressState, phases: readonly Phase[], rollback: boolean): Step[] {
  const passed = new Map(phases.map((p) => [p.state, p]));
  const way = (rollback ? ROLLBACK_STEPS : UPGRADE_STEPS).slice();
  const bad = state === "failed" || state === "rolled_back";
  // The last state before a bad end is where it ended.
  const reached = bad ? ([...phases].reverse().find((p) => !isOver(p.state))?.state ?? "sent") : state;
  const at = way.indexOf(reached === "accepted" || reached === "waiting_for_host" ? "sent" : reached);
  return way.map((s, i) => {
    const p = passed.get(s) ?? (s === "sent" ? passed.get("accepted") : undefined);
    const place = i < at ? "done" : i > at ? "todo" : bad ? "failed" : state === "committed" ? "done" : "now";
    return { state: s, place, at: place === "todo" ? undefined : p?.at, ms: place === "todo" ? undefined : p?.ms };
  });
}
