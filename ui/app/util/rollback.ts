/** What a rollback would do, in words, and why its button may not be pressed. */
import type { Agent, RollbackPreview } from "~/api/types";
import { exact } from "./time";
import { plural } from "./words";

/** backTo is where one agent could go, and until when. */
export function backTo(agent: Agent): string {
  const r = agent.rollback;
  if (!r?.available) return "no version";
  return `${r.version}, ${limit(r.valid_until)}`;
}

/** limit says until when it is possible; without a time the upgrade is still being watched. */
export function limit(validUntil?: string): string {
  return validUntil ? `until ${exact(validUntil)}` : "while the upgrade is watched";
}

/** versionsOf are the versions agents would go back to, each once. */
export function versionsOf(preview: RollbackPreview): string[] {
  return [...new Set(preview.items.flatMap((i) => (i.will && i.to ? [i.to] : [])))];
}

/** confirmText is what the button does: its agents and, where they share one, their version. */
export function confirmText(preview: RollbackPreview | undefined, agents: number): string {
  const versions = preview ? versionsOf(preview) : [];
  return `Roll back ${plural(preview?.will ?? agents, "agent")}${versions.length === 1 ? ` to ${versions[0]}` : ""}`;
}

/** whyNotGoBack is null when the button may be pressed. */
export function whyNotGoBack(preview: RollbackPreview | undefined, error: unknown): string | null {
  if (error) return "Without a preview nothing is started.";
  if (!preview) return "Working out what would happen…";
  if (preview.will === 0) return "None of these agents can go back.";
  return null;
}
