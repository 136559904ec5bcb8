/** What unenrolling would do, in words, and why its button is disabled. */
import type { UnenrollPreview } from "~/api/types";
import { plural } from "~/util/words";

/** confirmText is the label of the button: the host, or the number of agents. */
export function confirmText(preview: UnenrollPreview | undefined, agents: number, host?: string): string {
  return `Unenrol ${host ?? plural(preview?.will ?? agents, "host")}`;
}

/** doneText is the message after it. */
export function doneText(preview: UnenrollPreview | undefined, agents: number, revoke: boolean, host?: string): string {
  const will = preview?.will ?? agents;
  const was = host || will === 1 ? "was" : "were";
  return `${host ?? plural(will, "host")} ${was} ${revoke ? "unenrolled" : "asked to unenrol"}`;
}

/** whyNotLeave returns null if the button is enabled. */
export function whyNotLeave(preview: UnenrollPreview | undefined, error: unknown): string | null {
  if (error) return "The preview could not be read.";
  if (!preview) return "The preview is being read.";
  if (preview.will > 0) return null;
  return preview.wont === 1 ? "This host cannot be unenrolled." : "None of these hosts can be unenrolled.";
}
