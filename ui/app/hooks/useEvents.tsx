/** The one event stream of the page, and the caches that it keeps fresh. */
import { type QueryClient, type QueryKey, useQueryClient } from "@tanstack/react-query";
import { createContext, type ReactNode, useContext, useEffect, useState } from "react";
import { eventTypes } from "~/api/__generated__/planSchema";
import { effectsOf, freshOf, patchFound } from "~/api/events";
import { keys } from "~/api/queries";
import type { Agent, AgentList, FleetEvent } from "~/api/types";

/** Changes are drawn at most this often: otherwise 1,000 downloading agents would redraw the table 1,000 times. */
export const PATCH_EVERY_MS = 200;
/** What few events change, such as a rollout that an operator pauses, is read again at most this often: at once for a person. */
export const REFETCH_EVERY_MS = 500;
/** Pages, counts and grids change with nearly every event of a busy fleet, and reading them costs the server most: every browser would read them all the time. */
export const SLOW_EVERY_MS = 3_000;
/** First and longest wait before a stream that the browser has closed is opened again. */
export const REOPEN_MS = 1_000;
export const REOPEN_MAX_MS = 30_000;

export type StreamState = "connecting" | "live" | "reconnecting";

const Context = createContext<StreamState | null>(null);

export function EventsProvider({ children }: { children: ReactNode }) {
  const client = useQueryClient();
  const [state, setState] = useState<StreamState>("connecting");
  useEffect(() => followEvents(client, setState, (url) => new EventSource(url)), [client]);
  return <Context value={state}>{children}</Context>;
}

export function useStreamState(): StreamState {
  const state = useContext(Context);
  if (!state) throw new Error("EventsProvider is missing above this component");
  return state;
}

/** followEvents keeps a stream open until the returned function is called. */
export function followEvents(client: QueryClient, onState: (state: StreamState) => void, open: (url: string) => EventSource): () => void {
  const updates = new Updates(client);
  let source: EventSource | null = null;
  let lastSeq = 0;
  let failures = 0;
  let wasOpen = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let stopped = false;

  const receive = (message: MessageEvent<string>) => {
    let event: FleetEvent;
    try {
      event = JSON.parse(message.data) as FleetEvent;
    } catch {
      return; // not one of our events; the next poll makes up for it
    }
    lastSeq = Math.max(lastSeq, event.seq);
    updates.take(event);
  };

  const connect = () => {
    source = open(lastSeq > 0 ? `/api/v1/events?after=${lastSeq}` : "/api/v1/events");
    source.onopen = () => {
      failures = 0;
      onState("live");
      // Events may have been missed between the first read of a list and the first
      // open, or while a stream was down without an id to resume from. Lists that are
      // being read at the start are not read twice at once.
      if (!wasOpen || lastSeq === 0) updates.readAgain(keys.agents);
      wasOpen = true;
    };
    source.onerror = () => {
      onState(wasOpen ? "reconnecting" : "connecting");
      if (source?.readyState !== EventSource.CLOSED || stopped) return; // the browser reconnects by itself
      // The stream was refused: the session may have ended. Reading it leads to the login page in that case.
      void client.invalidateQueries({ queryKey: keys.session });
      const wait = Math.min(REOPEN_MAX_MS, REOPEN_MS * 2 ** failures++);
      timer = setTimeout(connect, wait);
    };
    for (const type of eventTypes) source.addEventListener(type, receive as EventListener);
    source.addEventListener("reset", (message) => {
      lastSeq = Math.max(lastSeq, Number((message as MessageEvent).lastEventId) || 0);
      void client.invalidateQueries();
    });
  };

  onState("connecting");
  connect();
  return () => {
    stopped = true;
    clearTimeout(timer);
    source?.close();
    updates.stop();
  };
}

/** Updates collects the effects of events and applies them at a bounded rate. */
class Updates {
  private patches = new Map<string, Agent>();
  private stale: Reader;
  private slow: Reader;
  /** Agents from events that arrived while lists were being read, which may be older. */
  private during = new Map<string, Agent>();
  private unsubscribe: () => void;
  private patchTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(private client: QueryClient) {
    this.stale = new Reader(client, REFETCH_EVERY_MS);
    this.slow = new Reader(client, SLOW_EVERY_MS);
    this.unsubscribe = client.getQueryCache().subscribe(({ query, ...event }) => {
      const arrived = event.type === "updated" && event.action.type === "success" && !event.action.manual;
      if (!arrived || query.queryKey[0] !== keys.agents[0] || this.during.size === 0) return;
      this.patch(this.during);
      if (client.isFetching({ queryKey: keys.agents }) === 0) this.during = new Map();
    });
  }

  take(event: FleetEvent): void {
    const effects = effectsOf(event);
    if (effects.patch) {
      this.patches.set(effects.patch.id, effects.patch);
      this.patchTimer ??= setTimeout(this.applyPatches, PATCH_EVERY_MS);
    }
    for (const key of effects.stale) this.stale.add(key);
    for (const key of effects.slow ?? []) this.slow.add(key);
  }

  /** Reads queries again that may have missed events. */
  readAgain(key: QueryKey): void {
    this.slow.add(key);
  }

  stop(): void {
    clearTimeout(this.patchTimer);
    this.stale.stop();
    this.slow.stop();
    this.unsubscribe();
  }

  private applyPatches = (): void => {
    this.patchTimer = undefined;
    const patches = this.patches;
    this.patches = new Map();
    this.patch(patches);
    if (this.client.isFetching({ queryKey: keys.agents }) === 0) return;
    // Apply them again once the list has been read. Reading the list again
    // instead would never end in a large fleet that changes all the time.
    for (const [id, agent] of patches) this.during.set(id, agent);
  };

  /**
   * patch replaces agents where they are held. It does not use setQueryData, which would count as a
   * read: a list that waits to be read again would count as fresh with agents that no longer belong to it.
   */
  private patch(patches: ReadonlyMap<string, Agent>): void {
    const cache = this.client.getQueryCache();
    for (const query of cache.findAll({ queryKey: keys.agentPages })) {
      const list = query.state.data as AgentList | number | undefined;
      const patched = typeof list === "object" ? patchFound(list, patches) : list;
      if (patched !== list) query.setState({ data: patched });
    }
    for (const query of cache.findAll({ queryKey: keys.eachAgent })) {
      const old = query.state.data as Agent | undefined;
      const fresh = old && patches.get(old.id);
      if (fresh) query.setState({ data: freshOf(old, fresh) });
    }
  }
}

/** Reader reads queries again at a bounded rate. */
class Reader {
  /** The beginnings of the keys of stale queries, as JSON. */
  private stale = new Set<string>();
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private client: QueryClient,
    private everyMs: number,
  ) {}

  add(key: QueryKey): void {
    this.stale.add(JSON.stringify(key));
    this.timer ??= setTimeout(this.read, this.everyMs);
  }

  stop(): void {
    clearTimeout(this.timer);
  }

  private read = (): void => {
    this.timer = undefined;
    const later = new Set<string>();
    // Each query is looked up among the stale keys, since thousands of agents have such a key and few queries are held.
    void this.client.invalidateQueries({
      predicate: ({ queryKey, state }) => {
        const key = queryKey.map((_, i) => JSON.stringify(queryKey.slice(0, i + 1))).find((begin) => this.stale.has(begin));
        if (key === undefined) return false;
        // A read that is under way goes on, since beginning it again each time would never end on a
        // busy server. It may be older than the event, so another one follows it.
        if (state.fetchStatus === "fetching") later.add(key);
        return state.fetchStatus !== "fetching";
      },
    });
    this.stale = later;
    if (later.size > 0) this.timer = setTimeout(this.read, this.everyMs);
  };
}
