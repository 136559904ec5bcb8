/** What a rollback would do, in words, and why its button is disabled. */
import type { RollbackPreview } from "~/api/types";
import { exact } from "./time";
import { plural } from "./words";

/** limit returns until when a rollback is possible; without a time the upgrade is still being watched. */
export function limit(validUntil?: string): string {
  return validUntil ? `until ${exact(validUntil)}` : "while the upgrade is watched";
}

/** versionsOf returns the versions that agents would go back to, each once. */
export function versionsOf(preview: RollbackPreview): string[] {
  return [...new Set(preview.items.flatMap((i) => (i.will && i.to ? [i.to] : [])))];
}

/** confirmText is the label of the button: its agents and, if they share one, their version. */
export function confirmText(preview: RollbackPreview | undefined, agents: number): string {
  const versions = preview ? versionsOf(preview) : [];
  return `Roll back ${plural(preview?.will ?? agents, "host")}${versions.length === 1 ? ` to ${versions[0]}` : ""}`;
}

/** whyNotGoBack returns null if the button is enabled. */
export function whyNotGoBack(preview: RollbackPreview | undefined, error: unknown): string | null {
  if (error) return "The preview could not be read.";
  if (!preview) return "The preview is being read.";
  if (preview.will === 0) return "None of these hosts can be rolled back.";
  return null;
}
