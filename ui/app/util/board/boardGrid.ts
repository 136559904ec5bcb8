/** What the board reads from the compact list of a rollout's targets. */
import type { RolloutGrid } from "~/api/types";

type List = readonly string[] | readonly number[];

const sameList = (a: List | undefined, b: List | undefined): boolean =>
  a === b || (a !== undefined && b !== undefined && a.length === b.length && a.every((v, i) => v === b[i]));

/** sameGrid returns the fresh grid with the old lists where nothing has changed, so that nothing is laid out or painted again. */
export function sameGrid(old: RolloutGrid | undefined, fresh: RolloutGrid): RolloutGrid {
  if (!old) return fresh;
  const kept = <K extends "agent_ids" | "hostnames" | "batches" | "states" | "progress">(name: K): RolloutGrid[K] =>
    sameList(old[name], fresh[name]) ? old[name] : fresh[name];
  const next = {
    ...fresh,
    agent_ids: kept("agent_ids"),
    hostnames: kept("hostnames"),
    batches: kept("batches"),
    states: kept("states"),
    progress: kept("progress"),
  };
  const unchanged =
    old.generation === next.generation &&
    old.agent_ids === next.agent_ids &&
    old.hostnames === next.hostnames &&
    old.batches === next.batches &&
    old.states === next.states &&
    old.progress === next.progress;
  return unchanged ? old : next;
}

/** failedIn returns the ids of the agents whose upgrade failed or was rolled back. */
export function failedIn(grid: RolloutGrid | undefined): string[] {
  return grid ? grid.agent_ids.filter((_, i) => grid.states[i] === "failed" || grid.states[i] === "rolled_back") : [];
}

export interface HostMatch {
  agentId: string;
  hostname: string;
}

/** matchHosts returns the first targets whose hostname contains a text, each hostname once. Names that begin with it come first. */
export function matchHosts(grid: RolloutGrid | undefined, text: string, most = 8): HostMatch[] {
  const word = text.trim().toLowerCase();
  if (!grid || word === "") return [];
  const begin: HostMatch[] = [];
  const within: HostMatch[] = [];
  const seen = new Set<string>();
  for (let i = 0; i < grid.hostnames.length && begin.length < most; i++) {
    const hostname = grid.hostnames[i]!;
    const at = hostname.toLowerCase().indexOf(word);
    if (at < 0 || seen.has(hostname) || (at > 0 && within.length >= most)) continue;
    seen.add(hostname);
    (at === 0 ? begin : within).push({ agentId: grid.agent_ids[i]!, hostname });
  }
  return [...begin, ...within].slice(0, most);
}
