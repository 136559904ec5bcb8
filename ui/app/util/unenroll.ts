/** What unenrolling would do, in words, and why its button may not be pressed. */
import type { UnenrollPreview } from "~/api/types";
import { plural } from "./words";

/** confirmText is what the button does: the exact number, or the host where there is one. */
export function confirmText(preview: UnenrollPreview | undefined, agents: number, host?: string): string {
  return `Unenroll ${host ?? plural(preview?.will ?? agents, "agent")}`;
}

/** doneText tells that it was done. */
export function doneText(preview: UnenrollPreview | undefined, agents: number, revoke: boolean, host?: string): string {
  const will = preview?.will ?? agents;
  const was = host || will === 1 ? "was" : "were";
  return `${host ?? plural(will, "agent")} ${was} ${revoke ? "put out of the fleet" : "asked to leave"}`;
}

/** whyNotLeave is null when the button may be pressed. */
export function whyNotLeave(preview: UnenrollPreview | undefined, error: unknown): string | null {
  if (error) return "Without a preview nobody is unenrolled.";
  if (!preview) return "Working out what would happen…";
  if (preview.will > 0) return null;
  return preview.wont === 1 ? "This agent cannot be unenrolled so." : "None of these agents can be unenrolled so.";
}
