/** The one event stream of the page, and the caches that it keeps fresh. */
import { useQueryClient, type QueryClient, type QueryKey } from "@tanstack/react-query";
import { createContext, useContext, useEffect, useMemo, useState, useSyncExternalStore, type ReactNode } from "react";
import { EVENT_TYPES, effectsOf, freshOf, patchFound, patchList } from "~/api/events";
import { History, type SeenEvent } from "~/api/history";
import { keys, SMALL_FLEET } from "~/api/queries";
import type { Agent, AgentList, FleetEvent } from "~/api/types";

/** Changes are drawn at most this often: otherwise 1,000 downloading agents would redraw the table 1,000 times. */
export const PATCH_EVERY_MS = 200;
/** Lists are read again at most twice a second, however many events arrive. */
export const REFETCH_EVERY_MS = 500;
/** The result of a query is read again at most this often while agents change: only the server knows which match now. */
export const REQUERY_EVERY_MS = 2_000;
/** First and longest wait before a stream that the browser has closed is opened again. */
export const REOPEN_MS = 1_000;
export const REOPEN_MAX_MS = 30_000;

export type StreamState = "connecting" | "live" | "reconnecting";

interface Events {
  state: StreamState;
  history: History;
}

const Context = createContext<Events | null>(null);

export function EventsProvider({ children }: { children: ReactNode }) {
  const client = useQueryClient();
  const [state, setState] = useState<StreamState>("connecting");
  const [history] = useState(() => new History(sessionStore()));

  useEffect(() => {
    const stop = followEvents(client, history, setState, (url) => new EventSource(url));
    const save = () => history.save();
    window.addEventListener("pagehide", save);
    return () => {
      window.removeEventListener("pagehide", save);
      history.save();
      stop();
    };
  }, [client, history]);

  return <Context value={useMemo(() => ({ state, history }), [state, history])}>{children}</Context>;
}

export function useStreamState(): StreamState {
  return useEvents().state;
}

export function useHistory(): History {
  return useEvents().history;
}

export function useSeenEvents(agentId: string): readonly SeenEvent[] {
  const { history } = useEvents();
  return useSyncExternalStore(history.subscribe, () => history.of(agentId));
}

function useEvents(): Events {
  const events = useContext(Context);
  if (!events) throw new Error("EventsProvider is missing above this component");
  return events;
}

function sessionStore(): Storage | null {
  try {
    return window.sessionStorage;
  } catch {
    return null; // disabled in the browser's settings
  }
}

/** followEvents keeps a stream open until the returned function is called. */
export function followEvents(
  client: QueryClient,
  history: History,
  onState: (state: StreamState) => void,
  open: (url: string) => EventSource,
): () => void {
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
    history.add(event);
    updates.take(event);
  };

  const connect = () => {
    source = open(lastSeq > 0 ? `/api/v1/events?after=${lastSeq}` : "/api/v1/events");
    source.onopen = () => {
      failures = 0;
      onState("live");
      // Events may have been missed between the first read of a list and the first
      // open, or while a stream was down without an id to resume from.
      if (!wasOpen || lastSeq === 0) void client.invalidateQueries({ queryKey: keys.agents });
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
    for (const type of EVENT_TYPES) source.addEventListener(type, receive as EventListener);
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
  private stale = new Map<string, QueryKey>();
  /** Agents from events that arrived while lists were being read, which may be older. */
  private during = new Map<string, Agent>();
  private unsubscribe: () => void;
  private patchTimer: ReturnType<typeof setTimeout> | undefined;
  private staleTimer: ReturnType<typeof setTimeout> | undefined;
  private queryTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(private client: QueryClient) {
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
    for (const key of effects.stale) this.markStale(key);
  }

  stop(): void {
    clearTimeout(this.patchTimer);
    clearTimeout(this.staleTimer);
    clearTimeout(this.queryTimer);
    this.unsubscribe();
  }

  private markStale(key: QueryKey): void {
    this.stale.set(JSON.stringify(key), key);
    this.staleTimer ??= setTimeout(this.refetch, REFETCH_EVERY_MS);
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

  private patch(patches: ReadonlyMap<string, Agent>): void {
    for (const [key, list] of this.client.getQueriesData<AgentList>({ queryKey: keys.agentLists })) {
      const { showInactive, kuery } = key[2] as { showInactive: boolean; kuery?: string };
      if (!list) continue;
      this.client.setQueryData<AgentList>(key, kuery ? patchFound(list, patches) : patchList(list, patches, showInactive));
      // A long list is too large to read at every change; it waits for its poll.
      if (kuery && list.total <= SMALL_FLEET) this.queryTimer ??= setTimeout(this.requery, REQUERY_EVERY_MS);
    }
    for (const agent of patches.values()) {
      this.client.setQueryData<Agent>(keys.agent(agent.id), (old) => (old ? freshOf(old, agent) : undefined));
    }
  }

  private requery = (): void => {
    this.queryTimer = undefined;
    void this.client.invalidateQueries({
      queryKey: keys.agentLists,
      predicate: ({ queryKey, state }) => !!(queryKey[2] as { kuery?: string }).kuery && ((state.data as AgentList | undefined)?.total ?? 0) <= SMALL_FLEET,
    });
  };

  private refetch = (): void => {
    this.staleTimer = undefined;
    const stale = [...this.stale.values()];
    this.stale.clear();
    for (const queryKey of stale) void this.client.invalidateQueries({ queryKey });
  };
}
