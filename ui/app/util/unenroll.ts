/** What unenrolling would do, in words, and why its button is disabled. */
import type { UnenrollPreview } from "~/api/types";
import { plural } from "./words";

/** confirmText is the label of the button: the host, or the number of agents. */
export function confirmText(preview: UnenrollPreview | undefined, agents: number, host?: string): string {
  return `Unenroll ${host ?? plural(preview?.will ?? agents, "agent")}`;
}

/** doneText is the message after it. */
export function doneText(preview: UnenrollPreview | undefined, agents: number, revoke: boolean, host?: string): string {
  const will = preview?.will ?? agents;
  const was = host || will === 1 ? "was" : "were";
  return `${host ?? plural(will, "agent")} ${was} ${revoke ? "unenrolled" : "asked to unenroll"}`;
}

/** whyNotLeave returns null if the button is enabled. */
export function whyNotLeave(preview: UnenrollPreview | undefined, error: unknown): string | null {
  if (error) return "The preview failed.";
  if (!preview) return "Loading the preview…";
  if (preview.will > 0) return null;
  return preview.wont === 1 ? "This agent cannot be unenrolled." : "None of these agents can be unenrolled.";
}
