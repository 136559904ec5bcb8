/** The platforms and keys that hosts enrol with. The server makes the commands. */
import type { EnrollmentKey } from "~/api/types";

export const PLATFORMS = ["linux-amd64", "linux-arm64", "darwin-arm64", "windows-amd64"] as const;
export type Platform = (typeof PLATFORMS)[number];

export const platformWord: Record<Platform, string> = {
  "linux-amd64": "Linux x86-64",
  "linux-arm64": "Linux ARM",
  "darwin-arm64": "macOS",
  "windows-amd64": "Windows",
};

export const isPlatform = (text: string | undefined): text is Platform => PLATFORMS.some((p) => p === text);

/** What an operator must know before choosing the platform; empty for Linux, where everything works. */
export function platformNote(p: Platform): string {
  if (p === "windows-amd64")
    return "Run the command as an administrator. Upgrades and rollbacks on Windows were tested in parts only, not on a whole Windows host: try both on one host first. Components run as containers only.";
  if (p === "darwin-arm64") return "On macOS the agent and its watcher run as jobs of launchd. Components run as processes only.";
  return "";
}

/** keyLabel is the key's name without the id that the server appends, or the start of the id. */
export const keyLabel = (k: Pick<EnrollmentKey, "id" | "name">): string => k.name.replace(` (${k.id})`, "").replace(k.id, "").trim() || k.id.slice(0, 8);

/** withCreated keeps the token of the key that was just created: a server may store only a hash of it, and never send it again. */
export function withCreated(keys: readonly EnrollmentKey[], created: EnrollmentKey | null): EnrollmentKey[] {
  if (!created) return [...keys];
  const listed = keys.find((k) => k.id === created.id);
  return [{ ...created, ...listed, api_key: created.api_key }, ...keys.filter((k) => k !== listed)];
}
