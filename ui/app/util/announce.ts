/** What a screen reader announces of a changing fleet: ends of upgrades, not every percent. */
import type { Agent } from "~/api/types";
import { hostOf } from "./facts";
import { phaseOf } from "./phase";

/** More ends than this at once are announced as counts. */
const NAMED = 3;

export function announce(before: readonly Agent[], after: readonly Agent[], now: number): string {
  const old = new Map(before.map((a) => [a.id, a]));
  const upgraded: Agent[] = [];
  const failed: Agent[] = [];
  for (const agent of after) {
    const was = old.get(agent.id);
    if (!was || was === agent) continue;
    if (was.agent.version !== agent.agent.version && phaseOf(agent, now).kind === "none") upgraded.push(agent);
    const kind = phaseOf(agent, now).kind;
    if ((kind === "failed" || kind === "rolled_back") && phaseOf(was, now).kind !== kind) failed.push(agent);
    // A version that is installed already is announced when its watch ends.
    if (was.agent.version === agent.agent.version && phaseOf(was, now).kind === "running" && kind === "none") upgraded.push(agent);
  }
  return [tell(upgraded, (a) => `${hostOf(a)} runs ${a.agent.version}`, "agents finished their upgrade"),
    tell(failed, (a) => `${hostOf(a)}: ${phaseText(a, now)}`, "agents failed their upgrade")].filter(Boolean).join(". ");
}

function phaseText(agent: Agent, now: number): string {
  const phase = phaseOf(agent, now);
  return phase.kind === "none" ? "" : phase.text;
}

function tell(agents: Agent[], one: (a: Agent) => string, many: string): string {
  if (agents.length === 0) return "";
  return agents.length <= NAMED ? agents.map(one).join(". ") : `${agents.length.toLocaleString()} ${many}`;
}
