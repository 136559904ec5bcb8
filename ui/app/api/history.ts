/**
 * What this browser tab has seen of each agent, kept short and kept across a
 * reload. The server has no call for the events of one agent, so a page that
 * shows them shows these, and says so.
 */
import type { Agent, FleetEvent, UpgradeState } from "./types";

export interface SeenEvent {
  seq: number;
  at: string;
  type: string;
  actor?: string;
  status?: string;
  version?: string;
  /** upgrade_status of the record: "started" without a state is an upgrade the agent has not taken yet. */
  upgrade?: string;
  state?: UpgradeState;
  target?: string;
  action?: string;
  /** How far the watcher on the host is; in events of a rollout, the target's state there. */
  stage?: string;
  /** The error or the reason, where there is one. */
  reason?: string;
}

/** Enough for several upgrades with all their phases. */
export const PER_AGENT = 60;
/** 500 agents × 60 events × about 150 bytes stay under the 5 MB a browser gives a session. */
export const AGENTS_KEPT = 500;

const STORAGE_KEY = "muster-events-seen";

export class History {
  private seen = new Map<string, readonly SeenEvent[]>();
  private listeners = new Set<() => void>();

  constructor(private storage: Pick<Storage, "getItem" | "setItem"> | null) {
    try {
      const text = storage?.getItem(STORAGE_KEY);
      if (text) this.seen = new Map(JSON.parse(text) as [string, SeenEvent[]][]);
    } catch {
      // Another version of this page wrote it. It is a convenience, not a record.
    }
  }

  add(event: FleetEvent): void {
    const id = agentIdOf(event);
    if (!id) return;
    const entry = condense(event);
    const old = this.seen.get(id) ?? [];
    const last = old[0];
    if (last && entry.seq <= last.seq) return; // a resumed stream may repeat itself
    // Download progress comes several times a second and would push out the phases.
    const rest = last && samePhase(last, entry) ? old.slice(1) : old;
    const kept = last && samePhase(last, entry) ? { ...entry, at: last.at } : entry;
    this.seen.delete(id);
    this.seen.set(id, [kept, ...rest].slice(0, PER_AGENT));
    for (const stale of this.seen.keys()) {
      if (this.seen.size <= AGENTS_KEPT) break;
      this.seen.delete(stale);
    }
    this.listeners.forEach((l) => l());
  }

  /** of returns the same array until something is added: useSyncExternalStore relies on it. */
  of(agentId: string): readonly SeenEvent[] {
    return this.seen.get(agentId) ?? NOTHING;
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  save(): void {
    try {
      this.storage?.setItem(STORAGE_KEY, JSON.stringify([...this.seen]));
    } catch {
      // Storage is full or switched off: the next page starts without.
    }
  }

  clear(): void {
    this.seen.clear();
    this.save();
    this.listeners.forEach((l) => l());
  }
}

const NOTHING: readonly SeenEvent[] = [];

function agentIdOf(event: FleetEvent): string | undefined {
  if (event.type.startsWith("agent.")) return event.subject;
  const id = event.data?.agent_id;
  return typeof id === "string" ? id : undefined;
}

function condense(event: FleetEvent): SeenEvent {
  const agent = event.data?.agent as Agent | undefined;
  const details = agent?.upgrade_details;
  const error = event.data?.error;
  const watch = event.type === "agent.watch" ? agent?.watch : undefined;
  return {
    seq: event.seq,
    at: event.at,
    type: event.type,
    actor: event.actor || undefined,
    status: agent?.status,
    version: agent?.agent?.version,
    upgrade: agent?.upgrade_status ?? undefined,
    state: details?.state,
    target: watch?.to ?? details?.target_version,
    stage: watch?.stage ?? textOf(event.data?.state),
    action: details?.action_id,
    reason: watch?.reason?.text || details?.metadata?.reason || details?.metadata?.error_msg || textOf(error),
  };
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

function samePhase(a: SeenEvent, b: SeenEvent): boolean {
  return a.type === "agent.upgrade" && b.type === a.type && a.state !== undefined &&
    a.state === b.state && a.action === b.action && a.status === b.status;
}

/** phaseTimes says when each phase of one upgrade was first seen. */
export function phaseTimes(seen: readonly SeenEvent[], action: string): Map<UpgradeState, string> {
  const times = new Map<UpgradeState, string>();
  let asked: string | undefined;
  for (const e of [...seen].reverse()) {
    // The request names no action yet; the phases that follow belong to it.
    if (isRequest(e)) asked = e.at;
    if (e.action !== action || !e.state) continue;
    if (asked && times.size === 0) times.set("UPG_REQUESTED", asked);
    if (!times.has(e.state)) times.set(e.state, e.at);
  }
  return times;
}

export function isRequest(e: SeenEvent): boolean {
  return e.type === "agent.upgrade" && e.upgrade === "started" && !e.state;
}
