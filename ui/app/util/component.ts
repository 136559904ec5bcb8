/**
 * Components of an agent: which commands are possible, with the reasons why not. Checks only what
 * would make a dialog pointless; the server's preview decides the rest.
 */
import type { Agent, AgentComponent, PolicyComponent } from "~/api/types";
import { quoted } from "./kql";
import { plural } from "./words";

/** The query that finds the agents which run a component, in any version or in one. */
export const runsQuery = (name: string, version?: string): string =>
  `components.name: ${/^[\w.-]+$/.test(name) ? name : quoted(name)}${version ? ` and components.version: ${quoted(version)}` : ""}`;

/** The versions that a host has kept and does not run; the one to go back to comes first. */
export function keptOf(c: AgentComponent): string[] {
  // The host lists the newest last.
  const kept = (c.rollbacks ?? []).filter((v) => v !== c.version).reverse();
  return kept.sort((a, b) => Number(b === c.last_healthy_version) - Number(a === c.last_healthy_version));
}

export function whyNotUpgradeComponent(a: Agent, c: AgentComponent): string | null {
  if (a.status === "unenrolled" || !a.active) return "Its agent is unenrolled.";
  if (a.status === "unenrolling") return "Its agent is unenrolling.";
  if (c.rollout) return `The rollout “${c.rollout.name}” includes it. Skip it there, or wait until the rollout ends.`;
  if (c.upgrade_status === "started") return `It is being upgraded${c.upgrade_details ? ` to ${c.upgrade_details.target_version}` : ""}.`;
  return null;
}

export function whyNotGoBackComponent(a: Agent, c: AgentComponent): string | null {
  return whyNotUpgradeComponent(a, c) ?? (keptOf(c).length === 0 ? "The host keeps no other version of it." : null);
}

/** How hosts observe a component of a policy after its upgrade; what is not said is the agent's default. */
export function healthText({ health: h }: PolicyComponent): string {
  const parts = [
    h?.wait_seconds ? `${h.wait_seconds.toLocaleString()} s` : "",
    h?.max_restarts === undefined ? "" : `at most ${plural(h.max_restarts, "restart")}`,
    ...(h?.checks ?? []).map((c) => `${c.name}: ${c.http ?? c.tcp ?? ""}`),
  ].filter(Boolean);
  return parts.join(", ") || "the agent's defaults";
}
