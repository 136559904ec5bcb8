import { QueryClient, type QueryKey, QueryObserver } from "@tanstack/react-query";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { keys } from "~/api/queries";
import type { AgentList, FleetEvent } from "~/api/types";
import { agent, details } from "~/testing/agent";
import { followEvents, PATCH_EVERY_MS, REFETCH_EVERY_MS, REOPEN_MS, SLOW_EVERY_MS } from "./useEvents";

/** A stream that tests can send events through. */
class Stream extends EventTarget {
  readyState: number = EventSource.OPEN;
  onopen: (() => void) | null = null;
  onerror: (() => void) | null = null;
  constructor(readonly url: string) {
    super();
  }
  close() {
    this.readyState = EventSource.CLOSED;
  }
  say(event: FleetEvent) {
    this.dispatchEvent(new MessageEvent(event.type, { data: JSON.stringify(event), lastEventId: String(event.seq) }));
  }
}

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("EventSource", { CONNECTING: 0, OPEN: 1, CLOSED: 2 });
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

function follow() {
  const client = new QueryClient();
  const streams: Stream[] = [];
  const states: string[] = [];
  const stop = followEvents(
    client,
    (s) => states.push(s),
    (url) => {
      const s = new Stream(url);
      streams.push(s);
      return s as unknown as EventSource;
    },
  );
  return { client, streams, states, stop };
}

const PAGE = [...keys.agentPages, {}];

const upgrade = (seq: number, percent: number): FleetEvent => ({
  seq,
  at: "2026-01-02T12:00:00Z",
  type: "agent.upgrade",
  subject: "id-of-web-01",
  data: { agent: agent({ upgrade_details: details("UPG_DOWNLOADING", { download_percent: percent }) }) },
});

test("a change reaches the list within a fifth of a second, without reading the list again", () => {
  const { client, streams, stop } = follow();
  client.setQueryData<AgentList>(PAGE, { items: [agent()], total: 1, page: 1, perPage: 10 });
  const refetch = vi.spyOn(client, "invalidateQueries");
  streams[0]!.onopen!();
  refetch.mockClear();
  streams[0]!.say(upgrade(1, 10));
  streams[0]!.say(upgrade(2, 42));
  vi.advanceTimersByTime(PATCH_EVERY_MS);
  expect(client.getQueryData<AgentList>(PAGE)!.items[0]!.upgrade_details!.metadata!.download_percent).toBe(42);
  vi.advanceTimersByTime(REFETCH_EVERY_MS);
  expect(refetch.mock.calls.map(([f]) => f!.queryKey)).not.toContainEqual(keys.agents);
  stop();
});

test("a list that was read before an event and arrives after it does not undo it", async () => {
  const { client, streams, stop } = follow();
  let arrive: (list: AgentList) => void = () => {};
  const reading = client.fetchQuery({
    queryKey: PAGE,
    queryFn: () =>
      new Promise<AgentList>((r) => {
        arrive = r;
      }),
  });
  await vi.advanceTimersByTimeAsync(0);
  streams[0]!.say(upgrade(1, 42));
  await vi.advanceTimersByTimeAsync(PATCH_EVERY_MS);
  arrive({ items: [agent()], total: 1, page: 1, perPage: 10 });
  await reading;
  await vi.advanceTimersByTimeAsync(0);
  expect(client.getQueryData<AgentList>(PAGE)!.items[0]!.upgrade_details?.metadata?.download_percent).toBe(42);
  stop();
});

/** reads counts how often an open page reads a query. */
async function reads(client: QueryClient, queryKey: QueryKey): Promise<() => number> {
  let n = 0;
  new QueryObserver(client, { queryKey, queryFn: () => ++n }).subscribe(() => {});
  await vi.advanceTimersByTimeAsync(0);
  return () => n;
}

test("a hundred events cause one read of the actions in half a second", async () => {
  const { client, streams, stop } = follow();
  const actions = await reads(client, [...keys.actions, { page: 1 }]);
  const policies = await reads(client, keys.policies);
  for (let seq = 1; seq <= 100; seq++) streams[0]!.say({ seq, at: "2026-01-02T12:00:00Z", type: "action.result", subject: "a" });
  expect(actions()).toBe(1);
  await vi.advanceTimersByTimeAsync(REFETCH_EVERY_MS);
  expect([actions(), policies()]).toEqual([2, 1]);
  stop();
});

test("of the agents that change only those are read that a page shows", async () => {
  const { client, streams, stop } = follow();
  const shown = await reads(client, keys.timeline("id-of-web-01"));
  const other = await reads(client, keys.timeline("id-of-web-02"));
  for (const host of ["web-01", "db-01"]) streams[0]!.say({ ...upgrade(1, 10), subject: `id-of-${host}`, data: { agent: agent({ host }) } });
  await vi.advanceTimersByTimeAsync(SLOW_EVERY_MS);
  expect([shown(), other()]).toEqual([2, 1]);
  stop();
});

test("a refused stream is reopened after the last event, with growing delays", () => {
  const { streams, states, stop } = follow();
  streams[0]!.onopen!();
  streams[0]!.say(upgrade(7, 1));
  streams[0]!.readyState = EventSource.CLOSED;
  streams[0]!.onerror!();
  expect(states).toEqual(["connecting", "live", "reconnecting"]);
  vi.advanceTimersByTime(REOPEN_MS);
  expect(streams[1]!.url).toBe("/api/v1/events?after=7");
  streams[1]!.readyState = EventSource.CLOSED;
  streams[1]!.onerror!();
  vi.advanceTimersByTime(REOPEN_MS);
  expect(streams).toHaveLength(2);
  vi.advanceTimersByTime(REOPEN_MS);
  expect(streams).toHaveLength(3);
  streams[2]!.onopen!();
  expect(states.at(-1)).toBe("live");
  stop();
});

test("a stream that the browser reopens is left alone", () => {
  const { streams, stop } = follow();
  streams[0]!.readyState = EventSource.CONNECTING;
  streams[0]!.onerror!();
  vi.advanceTimersByTime(60_000);
  expect(streams).toHaveLength(1);
  stop();
});

test("after a reset everything is read again", () => {
  const { client, streams, stop } = follow();
  const refetch = vi.spyOn(client, "invalidateQueries");
  streams[0]!.dispatchEvent(new MessageEvent("reset", { data: "{}", lastEventId: "90" }));
  expect(refetch).toHaveBeenCalledWith();
  streams[0]!.readyState = EventSource.CLOSED;
  streams[0]!.onerror!();
  vi.advanceTimersByTime(REOPEN_MS);
  expect(streams[1]!.url).toBe("/api/v1/events?after=90");
  stop();
});

test("invalid events are ignored, and so are events after stop", () => {
  const { client, streams, stop } = follow();
  streams[0]!.dispatchEvent(new MessageEvent("agent.status", { data: "not json" }));
  streams[0]!.say({ seq: 3, at: "2026-01-02T12:00:00Z", type: "action.created", subject: "a" });
  const refetch = vi.spyOn(client, "invalidateQueries");
  stop();
  vi.advanceTimersByTime(60_000);
  expect(refetch).not.toHaveBeenCalled();
  expect(streams[0]!.readyState).toBe(EventSource.CLOSED);
});

test("agents found by a query are updated in place, and the query is read again at a bounded rate", () => {
  const { client, streams, stop } = follow();
  const key = [...keys.agentPages, { kuery: "health: healthy" }];
  client.setQueryData<AgentList>(key, { items: [agent()], total: 1, page: 1, perPage: 10 });
  streams[0]!.onopen!();
  for (let i = 1; i <= 5; i++) {
    streams[0]!.say(upgrade(2 * i, 10 * i));
    streams[0]!.say({ ...upgrade(2 * i + 1, 1), subject: "id-of-db-01", data: { agent: agent({ host: "db-01" }) } });
    vi.advanceTimersByTime(PATCH_EVERY_MS);
  }
  const list = client.getQueryData<AgentList>(key)!;
  expect(list.items.map((a) => [a.id, a.upgrade_details?.metadata?.download_percent])).toEqual([["id-of-web-01", 50]]);
  expect(client.getQueryState(key)!.isInvalidated).toBe(false);
  vi.advanceTimersByTime(SLOW_EVERY_MS);
  expect(client.getQueryState(key)!.isInvalidated).toBe(true);
  stop();
});

test("a list that waits to be read again still waits after its agents were updated in place", async () => {
  const { client, streams, stop } = follow();
  // Nobody looks at this list at present, as at the one behind a query that is cleared later.
  client.setQueryData<AgentList>(PAGE, { items: [agent()], total: 1, page: 1, perPage: 10 });
  streams[0]!.say({ seq: 1, at: "2026-01-02T12:00:00Z", type: "action.created", subject: "id-of-the-order" });
  vi.advanceTimersByTime(SLOW_EVERY_MS - 1);
  streams[0]!.say({ ...upgrade(2, 10), type: "agent.unenrolled", data: { agent: agent({ status: "unenrolled" }) } });
  vi.advanceTimersByTime(PATCH_EVERY_MS);
  const query = client.getQueryCache().find<AgentList>({ queryKey: PAGE })!;
  expect(query.state.data!.items[0]!.status).toBe("unenrolled");
  expect(query.state.isInvalidated, "the list is read when somebody looks at it").toBe(true);
  stop();
});

test("a page that was being read when an event arrived is read once more, since it may be older", async () => {
  const { client, streams, stop } = follow();
  const key = keys.grid("r");
  const answers: ((grid: string) => void)[] = [];
  const watch = new QueryObserver(client, {
    queryKey: key,
    queryFn: () =>
      new Promise<string>((r) => {
        answers.push(r);
      }),
  }).subscribe(() => {});
  await vi.advanceTimersByTimeAsync(0);
  streams[0]!.say({ seq: 1, at: "2026-01-02T12:00:00Z", type: "agent.upgrade_completed", subject: "a", data: { rollout_id: "r" } });
  await vi.advanceTimersByTimeAsync(SLOW_EVERY_MS);
  expect(answers).toHaveLength(1);
  answers[0]!("watching");
  await vi.advanceTimersByTimeAsync(SLOW_EVERY_MS);
  expect(answers).toHaveLength(2);
  answers[1]!("committed");
  await vi.advanceTimersByTimeAsync(2 * SLOW_EVERY_MS);
  expect([client.getQueryData(key), answers.length]).toEqual(["committed", 2]);
  watch();
  stop();
});
