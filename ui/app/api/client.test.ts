import { afterEach, expect, test, vi } from "vitest";
import { ApiError, call, errorFrom, fillPath } from "./client";

afterEach(() => vi.unstubAllGlobals());

function answering(status: number, body: string) {
  const fetch = vi.fn(async (_url: string, _init: RequestInit) => new Response(body, { status }));
  vi.stubGlobal("fetch", fetch);
  return fetch;
}

test("only calls that change something have the xsrf header", async () => {
  const fetch = answering(200, "{}");
  await call("get", "/api/v1/server");
  await call("delete", "/api/v1/session");
  const headers = fetch.mock.calls.map(([, init]) => init.headers as Record<string, string>);
  expect(headers[0]).not.toHaveProperty("kbn-xsrf");
  expect(headers[1]).toHaveProperty("kbn-xsrf", "muster-ui");
});

test("parameters are put where they belong, and escaped", async () => {
  const fetch = answering(200, "{}");
  await call("get", "/api/fleet/agents", { query: { perPage: 5, showInactive: false } });
  await call("get", "/api/fleet/agents/{agentId}", { path: { agentId: "a/b" } });
  expect(fetch.mock.calls.map(([url]) => url)).toEqual(["/api/fleet/agents?perPage=5&showInactive=false", "/api/fleet/agents/a%2Fb"]);
  expect(() => fillPath("/x/{agentId}", {})).toThrow(/agentId/);
});

test("a refusal becomes an error with the server's message", async () => {
  answering(409, JSON.stringify({ statusCode: 409, error: "Conflict", message: "The action is over." }));
  const error = await call("get", "/api/v1/server").catch((e: unknown) => e);
  expect(error).toBeInstanceOf(ApiError);
  expect(error).toMatchObject({ statusCode: 409, code: "Conflict", message: "The action is over." });
});

test("a proxy's page becomes an error too", () => {
  expect(errorFrom(502, "<html>Bad gateway</html>")).toMatchObject({ statusCode: 502, message: expect.stringContaining("502") });
});

test("an unreachable server is distinguished from one that refuses", async () => {
  vi.stubGlobal("fetch", async () => {
    throw new TypeError("network");
  });
  await expect(call("get", "/api/v1/server")).rejects.toMatchObject({ statusCode: 0, code: "unreachable" });
});
