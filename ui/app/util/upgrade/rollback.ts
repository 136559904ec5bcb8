/** What a rollback would do, in words, and why its button is disabled. */
import type { Agent, Command, RollbackPreview } from "~/api/types";
import { exact } from "~/util/time";
import { compareVersions } from "~/util/version";
import { plural } from "~/util/words";

/** limit returns until when a rollback is possible; without a time the upgrade is still being watched. */
export function limit(validUntil?: string): string {
  return validUntil ? `until ${exact(validUntil)}` : "while the upgrade is watched";
}

/** versionsOf returns the versions that agents would go back to, each once. */
export function versionsOf(preview: RollbackPreview): string[] {
  return [...new Set(preview.items.flatMap((i) => (i.will && i.to ? [i.to] : [])))];
}

/** confirmText is the label of the button: its agents and, if they share one, their version. */
export function confirmText(preview: RollbackPreview | undefined, agents: number, forward = false): string {
  const versions = preview ? versionsOf(preview) : [];
  return `${forward ? "Move" : "Roll back"} ${plural(preview?.will ?? agents, "host")}${versions.length === 1 ? ` to ${versions[0]}` : ""}`;
}

/**
 * withForward returns the commands of an agent. A rollback that is refused because it would go forward is another
 * command, whose dialog shows that reason and asks whether it is meant.
 */
export function withForward(a: Pick<Agent, "agent" | "commands" | "rollback">): Command[] {
  const to = a.rollback?.available ? a.rollback.version : undefined;
  return (a.commands ?? []).map((c) =>
    c.name === "rollback" && !c.allowed && to && compareVersions(to, a.agent.version) > 0 ? { ...c, name: "forward", allowed: true, reason: undefined } : c,
  );
}

/** whyNotGoBack returns null if the button is enabled. */
export function whyNotGoBack(preview: RollbackPreview | undefined, error: unknown): string | null {
  if (error) return "The preview could not be read.";
  if (!preview) return "The preview is being read.";
  if (preview.will === 0) return "None of these hosts can be rolled back.";
  return null;
}
