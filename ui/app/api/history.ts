/**
 * The events that this browser tab has received for each agent, bounded, and stored across a
 * reload. The server has no call for the events of one agent, so pages show these, and say so.
 */
import type { Agent, FleetEvent, UpgradeDetails, UpgradeState } from "./types";

export interface SeenEvent {
  seq: number;
  at: string;
  type: string;
  actor?: string;
  /** The component that an event is about, rather than the agent itself. */
  component?: string;
  status?: string;
  version?: string;
  /** upgrade_status of the record: "started" without a state is an upgrade that the agent has not started yet. */
  upgrade?: string;
  state?: UpgradeState;
  target?: string;
  action?: string;
  /** Stage of the watcher on the host; in events of a rollout, the state of the target. */
  stage?: string;
  /** The error or the reason, if there is one. */
  reason?: string;
}

/** Enough for several upgrades with all their phases. */
export const PER_AGENT = 60;
/** 500 agents × 60 events × about 150 bytes stay below the 5 MB that a browser allows for session storage. */
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
      // Written by another version of this page. Losing it does no harm.
    }
  }

  add(event: FleetEvent): void {
    const id = agentIdOf(event);
    if (!id) return;
    let entry = condense(event);
    const old = this.seen.get(id) ?? [];
    const last = old[0];
    if (old.some((e) => entry.seq <= e.seq)) return; // a resumed stream may repeat events
    const same = endOf(old, entry);
    if (same?.component && entry.component) {
      // A component keeps the details of an upgrade that failed until its next one.
      entry = { ...entry, state: undefined, reason: undefined };
    } else if (same) {
      this.put(id, old.map((e) => (e === same ? tellOnce(e, entry) : e)));
      return;
    }
    // Download progress comes several times a second and would displace the phases.
    const rest = last && samePhase(last, entry) ? old.slice(1) : old;
    const kept = last && samePhase(last, entry) ? { ...entry, at: last.at } : entry;
    this.put(id, [kept, ...rest].slice(0, PER_AGENT));
  }

  private put(id: string, events: readonly SeenEvent[]): void {
    this.seen.delete(id);
    this.seen.set(id, events);
    for (const stale of this.seen.keys()) {
      if (this.seen.size <= AGENTS_KEPT) break;
      this.seen.delete(stale);
    }
    this.listeners.forEach((l) => l());
  }

  /** of returns the same array until an event is added, as useSyncExternalStore requires. */
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
      // Storage is full or disabled: the next page starts without a history.
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

/** What an event says of a component; its agent's record has all of them. */
function condenseComponent(event: FleetEvent): SeenEvent {
  const details = event.data?.upgrade_details as UpgradeDetails | null | undefined;
  return {
    seq: event.seq, at: event.at, type: event.type, actor: event.actor || undefined,
    component: textOf(event.data?.component), status: textOf(event.data?.status), version: textOf(event.data?.version),
    upgrade: textOf(event.data?.upgrade_status), state: details?.state, target: textOf(event.data?.target_version),
    action: textOf(event.data?.action_id), reason: details?.metadata?.reason || details?.metadata?.error_msg,
  };
}

/** What an event says of the versions that a host has staged. */
function condenseStaged(event: FleetEvent): SeenEvent {
  const list = event.data?.staged_versions;
  return { seq: event.seq, at: event.at, type: event.type, version: Array.isArray(list) ? list.join(", ") : undefined };
}

function condense(event: FleetEvent): SeenEvent {
  if (event.type === "agent.staged") return condenseStaged(event);
  if (event.type === "agent.component") return condenseComponent(event);
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
    action: details?.action_id ?? watch?.action_id ?? (event.type === "action.result" ? event.subject : undefined),
    reason: watch?.reason?.text || details?.metadata?.reason || details?.metadata?.error_msg || textOf(error),
  };
}

/**
 * How much an event tells about an upgrade that ended badly; 0 if it tells nothing about that. Such
 * an end changes several records, and each change is an event: the watcher reports it twice, and the
 * agent, the action and the rollout once each.
 */
function tells(e: SeenEvent): number {
  switch (e.type) {
    case "agent.upgrade":
      return e.state === "UPG_ROLLBACK" || e.state === "UPG_FAILED" ? 4 : 0;
    case "agent.component": // UPG_ROLLBACK is not its end
      return e.state === "UPG_FAILED" ? 4 : 0;
    case "agent.watch":
      return e.stage === "rolling_back" || e.stage === "rolled_back" || e.stage === "rollback_failed" ? 3 : 0;
    case "agent.upgrade_completed":
      return e.stage === "rolled_back" || e.stage === "failed" ? 2 : 0;
    case "action.result":
      return e.reason ? 1 : 0;
    default:
      return 0;
  }
}

/** endOf returns the event that has told already how the upgrade ended that the entry is about. */
function endOf(old: readonly SeenEvent[], entry: SeenEvent): SeenEvent | undefined {
  if (tells(entry) === 0) return undefined;
  for (const e of old) {
    if (tells(e) > 0) return differ(e.action, entry.action) || differ(e.component, entry.component) ? undefined : e;
    if (e.type === "agent.upgrade" || e.component && e.component === entry.component && e.state) return undefined; // an upgrade has been under way since
  }
  return undefined;
}

function differ(a?: string, b?: string): boolean {
  return !!a && !!b && a !== b;
}

/** tellOnce merges two events about the end of one upgrade: when it was first told, by the one that tells most. */
function tellOnce(first: SeenEvent, next: SeenEvent): SeenEvent {
  const most = tells(next) >= tells(first) ? next : first;
  return { ...most, at: first.at, seq: next.seq, reason: most.reason ?? first.reason ?? next.reason };
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

function samePhase(a: SeenEvent, b: SeenEvent): boolean {
  return (a.type === "agent.upgrade" || a.type === "agent.component") && b.type === a.type && a.component === b.component &&
    a.state !== undefined && a.state === b.state && a.action === b.action && a.status === b.status;
}

/** phaseTimes returns when each phase of one upgrade was first seen. */
export function phaseTimes(seen: readonly SeenEvent[], action: string): Map<UpgradeState, string> {
  const times = new Map<UpgradeState, string>();
  let asked: string | undefined;
  for (const e of [...seen].reverse()) {
    // The request has no action id; the phases that follow belong to it.
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
