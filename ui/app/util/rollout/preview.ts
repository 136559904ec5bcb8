/** A preview in words and numbers. */
import type { Drift, Preview, PreviewTarget, SkippedAgent } from "~/api/types";
import { willOf } from "~/util/plan/planPreview";
import { plural } from "~/util/words";
import { codeText } from "./rolloutText";

export interface SkipGroup {
  code: string;
  title: string;
  agents: SkippedAgent[];
}

/** groupSkipped groups skipped agents by reason, the largest group first. */
export function groupSkipped(skipped: readonly SkippedAgent[], search = ""): SkipGroup[] {
  const words = wordsOf(search);
  const groups = new Map<string, SkippedAgent[]>();
  for (const s of skipped) {
    const text = `${s.hostname}\n${s.agent_id}\n${s.version}\n${s.text}`.toLowerCase();
    if (!words.every((w) => text.includes(w))) continue;
    const group = groups.get(s.code);
    if (group) group.push(s);
    else groups.set(s.code, [s]);
  }
  return [...groups]
    .map(([code, agents]) => ({ code, title: codeText(code), agents }))
    .sort((a, b) => b.agents.length - a.agents.length || a.code.localeCompare(b.code));
}

/** withConfig returns the targets for which the server renders configuration files, in their order. */
export function withConfig(p: Preview, search = ""): PreviewTarget[] {
  const words = wordsOf(search);
  return p.targets.filter((t) => t.config !== undefined && words.every((w) => `${t.hostname}\n${t.agent_id}`.toLowerCase().includes(w)));
}

const wordsOf = (search: string): string[] => search.toLowerCase().split(/\s+/).filter(Boolean);

/** startText is the label of the start button, with the number of hosts in the preview. */
export function startText(p: Preview): string {
  return `Upgrade ${plural(willOf(p), "host")}`;
}

/** whyNotStart returns null if a preview can be started. */
export function whyNotStart(p: Preview | undefined, error: unknown): string | null {
  if (error) return "The preview failed.";
  if (!p) return "Loading the preview…";
  if (willOf(p) === 0) return "No host would be upgraded.";
  return null;
}

/** driftText summarises a drift. */
export function driftText(d: Drift): string {
  const parts = [
    d.added.length > 0 ? `${plural(d.added.length, "host")} added` : "",
    d.removed.length > 0 ? `${plural(d.removed.length, "host")} removed` : "",
    d.changed.length > 0 ? `${d.changed.length.toLocaleString()} changed` : "",
  ].filter(Boolean);
  return parts.length > 0 ? parts.join(", ") : "nothing";
}

/** bytesOf returns what all targets download. */
export function bytesOf(p: Preview): number {
  return p.sites.reduce((sum, s) => sum + s.bytes, 0);
}

/** A hash, shortened and without its kind. */
export function shortHash(hash: string): string {
  return hash.replace(/^sha256:/, "").slice(0, 12);
}
