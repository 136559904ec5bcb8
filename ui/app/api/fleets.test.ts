import { afterEach, expect, test, vi } from "vitest";
import { fleet } from "~/testing/fleet";
import { ChangedMeanwhile, changeSpec, saveFleet } from "./fleets";
import type { Fleet } from "./types";

afterEach(() => vi.unstubAllGlobals());

/** A server with one fleet, which something changes before some writes reach it. */
function server(stored: Fleet, before: ((f: Fleet) => Fleet)[]) {
  const puts: Fleet[] = [];
  vi.stubGlobal("fetch", async (_url: string, { method, body }: RequestInit) => {
    if (method === "GET") return new Response(JSON.stringify(stored));
    const change = before.shift();
    if (change) {
      const next = change(stored);
      stored = { ...next, metadata: { ...next.metadata, resourceVersion: String(Number(stored.metadata.resourceVersion) + 1) } };
    }
    const f = JSON.parse(body as string) as Fleet;
    puts.push(f);
    if (f.metadata.resourceVersion !== stored.metadata.resourceVersion || f.metadata.uid !== stored.metadata.uid) {
      return new Response(JSON.stringify({ statusCode: 409, error: "Conflict", message: "it was changed" }), { status: 409 });
    }
    return new Response(JSON.stringify(f));
  });
  return puts;
}

const status = (f: Fleet): Fleet => ({ ...f, status: { ...f.status, agents: 9 } });
const edited = (f: Fleet): Fleet => ({ ...f, spec: { ...f.spec, failure: { count: 1 } } });

test("a status that the server has written meanwhile is no conflict", async () => {
  const base = fleet();
  const puts = server(base, [status, status]);
  await saveFleet(edited(base), base, "");
  expect(puts.map((p) => p.metadata.resourceVersion)).toEqual(["7", "8", "9"]);
});

test("a change of somebody else is not overwritten", async () => {
  const base = fleet();
  const puts = server(base, [(f) => ({ ...f, spec: { ...f.spec, paused: true } })]);
  const error = await saveFleet(edited(base), base, "").catch((e: unknown) => e);
  expect(error).toBeInstanceOf(ChangedMeanwhile);
  expect((error as ChangedMeanwhile).fresh.spec.paused).toBe(true);
  expect(puts).toHaveLength(1);
});

test("another object with the same name is not overwritten", async () => {
  const base = fleet();
  server(base, [(f) => ({ ...f, metadata: { ...f.metadata, uid: "u2" } })]);
  await expect(saveFleet(edited(base), base, "")).rejects.toBeInstanceOf(ChangedMeanwhile);
});

test("a change of one field keeps what others have changed, and ends after some conflicts", async () => {
  const puts = server(fleet(), [(f) => ({ ...f, spec: { ...f.spec, limits: { max_parallel: 3 } } })]);
  await changeSpec("web", { paused: true }, "");
  expect(puts.at(-1)!.spec).toMatchObject({ paused: true, limits: { max_parallel: 3 } });
  const many = server(
    fleet(),
    Array.from({ length: 20 }, () => status),
  );
  await expect(changeSpec("web", { paused: true }, "")).rejects.toMatchObject({ statusCode: 409 });
  expect(many).toHaveLength(4);
});
