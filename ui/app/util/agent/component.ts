/** Components of an agent in words. */
import type { AgentComponent, PolicyComponent } from "~/api/types";
import { quoted } from "~/util/kql";
import type { Tone } from "~/util/state";
import { plural } from "~/util/words";

/** The query that finds the agents which run a component, in any version or in one. */
export const runsQuery = (name: string, version?: string): string =>
  `components.name: ${/^[\w.-]+$/.test(name) ? name : quoted(name)}${version ? ` and components.version: ${quoted(version)}` : ""}`;

/** The versions that a host has kept and does not run; the one to go back to comes first. */
export function keptOf(c: AgentComponent): string[] {
  // The host lists the newest last.
  const kept = (c.rollbacks ?? []).filter((v) => v !== c.version).reverse();
  return kept.sort((a, b) => Number(b === c.last_healthy_version) - Number(a === c.last_healthy_version));
}

const tones: Record<string, Tone> = { HEALTHY: "ok", DEGRADED: "wait", FAILED: "bad", STARTING: "move", CONFIGURING: "move", STOPPING: "move" };

/** The tone of a component's state, which is the agent's own word. */
export const componentTone = (status: string): Tone => tones[status.toUpperCase()] ?? "away";

export const statusWord = (status: string): string => (status === "" ? "Unknown" : status[0]!.toUpperCase() + status.slice(1).toLowerCase());

/** How hosts observe a component of a policy after its upgrade; what is not said is the agent's default. */
export function healthText({ health: h }: PolicyComponent): string {
  const parts = [
    h?.wait_seconds ? `${h.wait_seconds.toLocaleString()} s` : "",
    h?.max_restarts === undefined ? "" : `at most ${plural(h.max_restarts, "restart")}`,
    ...(h?.checks ?? []).map((c) => `${c.name}: ${c.http ?? c.tcp ?? ""}`),
  ].filter(Boolean);
  return parts.join(", ") || "the agent's defaults";
}
