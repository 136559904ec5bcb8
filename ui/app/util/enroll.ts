/** The commands that install an agent and enrol it, for what hosts run on. */
import type { EnrollmentKey, Package, Server } from "~/api/types";
import { compareVersions } from "./version";
import { shellQuote } from "./words";

export const PLATFORMS = ["linux-amd64", "linux-arm64", "darwin-arm64", "windows-amd64"] as const;
export type Platform = (typeof PLATFORMS)[number];

export const platformWord: Record<Platform, string> = { "linux-amd64": "Linux x86-64", "linux-arm64": "Linux ARM", "darwin-arm64": "macOS", "windows-amd64": "Windows" };

export const isPlatform = (text: string | undefined): text is Platform => PLATFORMS.some((p) => p === text);

/** What an operator must know before choosing the platform; empty for Linux, where everything works. */
export function platformNote(p: Platform): string {
  if (p === "windows-amd64") return "Run the command as an administrator. Upgrades and rollbacks on Windows were tested in parts only, not on a whole Windows host: try both on one host first. Components run as containers only.";
  if (p === "darwin-arm64") return "On macOS the agent and its watcher run as jobs of launchd. Components run as processes only.";
  return "";
}

type Access = Pick<Server, "agent_url" | "ca_pin" | "publisher_keys" | "trust_root">;

/** flagsOf returns the flags that enrol a host. */
function flagsOf(server: Access, token: string): string[] {
  const flags = [
    ["--url", server.agent_url],
    ["--token", token],
    ["--ca-pin", server.ca_pin],
    // With the publishers' root a host trusts no single key.
    ...(server.trust_root ? [["--trust-root", server.trust_root]] : server.publisher_keys.map((key) => ["--trust-key", key])),
  ];
  return flags.map(([flag, value]) => `${flag} ${shellQuote(value!)}`);
}

/** newestAgent returns the newest release of the agent for a platform; snapshots only if there is nothing else. */
export function newestAgent(packages: readonly Package[], platform: Platform): Package | undefined {
  return packages
    .filter((p) => !p.component && !p.maker && !p.withheld && `${p.os}-${p.arch}` === platform)
    .sort((a, b) => Number(a.snapshot) - Number(b.snapshot) || compareVersions(b.version, a.version))[0];
}

/** installCommand unpacks the archive, which must be on the host, and installs and enrols the agent, in one line. */
export function installCommand(platform: Platform, file: string, server: Access, token: string): string {
  const flags = flagsOf(server, token).join(" ");
  if (platform === "windows-amd64") {
    return `tar -xf ${file}; cd ${folderOf(file)}; & (Get-Item .\\data\\*\\muster-agent.exe) install ${flags}`;
  }
  return `tar xzf ${shellQuote(file)} && cd ${shellQuote(folderOf(file))} && sudo ./data/*/muster-agent install ${flags}`;
}

const folderOf = (file: string): string => file.replace(/\.(tar\.gz|zip)$/, "");

/** keyLabel is the key's name without the id that the server appends, or the start of the id. */
export const keyLabel = (k: Pick<EnrollmentKey, "id" | "name">): string => k.name.replace(` (${k.id})`, "").replace(k.id, "").trim() || k.id.slice(0, 8);

/** withCreated keeps the token of the key that was just created: a server may store only a hash of it, and never send it again. */
export function withCreated(keys: readonly EnrollmentKey[], created: EnrollmentKey | null): EnrollmentKey[] {
  if (!created) return [...keys];
  const listed = keys.find((k) => k.id === created.id);
  return [{ ...created, ...listed, api_key: created.api_key }, ...keys.filter((k) => k !== listed)];
}
