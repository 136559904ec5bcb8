import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { act } from "react";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { GroupStatus } from "~/api/types";
import { makeRouter } from "~/router";
import { group, stop } from "~/testing/group";
import { counts } from "~/testing/rollout";

let root: Root;
let sent: { path: string; body: unknown }[];
let answers: Record<string, unknown>;

class NoEvents extends EventTarget {
  close() {}
}

beforeEach(() => {
  vi.stubGlobal("IS_REACT_ACT_ENVIRONMENT", true);
  vi.stubGlobal("EventSource", NoEvents);
  vi.stubGlobal("scrollTo", () => {});
  Object.defineProperty(document, "fonts", { value: new EventTarget(), configurable: true }); // happy-dom has none
  sent = [];
  answers = {
    "/api/v1/session": { key_id: "k", name: "kim", expires_at: "2036-01-01T00:00:00Z" },
    "/api/v1/server": {},
    "/api/v1/incidents": { items: [], total: 0, page: 1, perPage: 1 },
    "/api/v1/audit": { items: [], total: 0, page: 1, perPage: 100 },
  };
  vi.stubGlobal("fetch", async (url: string, { method, body }: RequestInit) => {
    const path = new URL(url, "http://server").pathname;
    if (method !== "GET") sent.push({ path, body: body ? JSON.parse(body as string) : undefined });
    const answer = answers[path];
    return answer === undefined
      ? new Response(JSON.stringify({ statusCode: 404, error: "Not Found", message: `no ${path}` }), { status: 404 })
      : new Response(JSON.stringify(answer));
  });
  root = createRoot(document.body.appendChild(document.createElement("div")));
});

afterEach(async () => {
  await act(async () => root.unmount());
  document.body.replaceChildren();
  vi.unstubAllGlobals();
});

/** open shows a page, and waits until it shows a text. */
async function open(path: string, shows: string): Promise<void> {
  window.history.replaceState(null, "", path);
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  await act(async () => root.render(
    <MantineProvider env="test"><QueryClientProvider client={client}><RouterProvider router={makeRouter(client)} /></QueryClientProvider></MantineProvider>,
  ));
  await until(() => document.body.textContent?.includes(shows) ?? false, shows);
}

async function until(holds: () => boolean, what: string): Promise<void> {
  for (let i = 0; i < 100 && !holds(); i++) await act(async () => { await new Promise((resolve) => setTimeout(resolve, 10)); });
  expect(holds(), `${what}: ${document.body.textContent}`).toBe(true);
}

const button = (name: string, within: ParentNode = document) => [...within.querySelectorAll("button")].find((b) => b.textContent === name)!;
const click = (b: HTMLElement) => act(async () => b.click());

function status(change: Partial<GroupStatus> = {}): GroupStatus {
  const g = group(change);
  return {
    ...g, waiting: "member web is being upgraded",
    progress: [
      { name: "db", state: g.members[0]!.state, version: "1.1.0", rollout_state: "completed", counts: counts({ succeeded: 4 }) },
      { name: "web", state: g.members[1]!.state, version: "2.0.0", rollout_state: "running", counts: counts({ succeeded: 1, failed: 1, pending: 2 }) },
    ],
    ...change,
  };
}

test("the board shows the members in order, with their progress and what the group waits for", async () => {
  answers["/api/v1/rollout-groups/g1"] = { item: status() };
  await open("/groups/g1", "Members");
  const members = [...document.querySelectorAll("[aria-label='Members in order'] > li")].map((li) => li.textContent);
  expect(members).toHaveLength(2);
  expect(members[0]).toContain("1. db to 1.1.0");
  expect(members[0]).toContain("4 upgraded");
  expect(members[1]).toContain("50 % of 4 targets done");
  expect(members[1]).toContain("1 failed");
  expect(document.body.textContent).toContain("Member web is being upgraded.");
  expect(button("Resume…").getAttribute("aria-disabled")).toBe("true");
  expect(button("Pause…").getAttribute("aria-disabled")).toBeNull();
});

test("after a failure the member that failed is left out with a reason", async () => {
  const members = [group().members[0]!, { ...group().members[1]!, state: "failed" as const, error: "its rollout was cancelled" }];
  answers["/api/v1/rollout-groups/g1"] = { item: status({ ...stop("failure", "web"), members }) };
  answers["/api/v1/rollout-groups/g1/skip"] = { item: group() };
  await open("/groups/g1", "A member failed: web");
  expect(document.body.textContent).toContain("3 of 5 failed.");
  expect(button("Resume…").getAttribute("aria-disabled")).toBe("true");
  await click(button("Leave a member out…"));
  const dialog = document.querySelector("[role=dialog]")!;
  expect(button("Leave it out", dialog).getAttribute("aria-disabled")).toBe("true");
  const reason = dialog.querySelector("textarea")!;
  await act(async () => {
    Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, "value")!.set!.call(reason, "broken disk");
    reason.dispatchEvent(new Event("input", { bubbles: true }));
  });
  await click(button("Leave it out", dialog));
  await until(() => sent.length > 0, "the command");
  expect(sent).toEqual([{ path: "/api/v1/rollout-groups/g1/skip", body: { why: "broken disk", member: "web" } }]);
});

test("a draft is started exactly as previewed", async () => {
  answers["/api/v1/rollout-groups/g1"] = { item: status({ state: "draft", members: group().members.map((m) => ({ name: m.name, state: "pending" as const })) }) };
  answers["/api/v1/rollout-groups/g1/preview"] = {
    item: {
      group_id: "g1", hash: "sha256:abc", at: "2026-01-02T10:00:00Z", at_least: "1h0m0s", estimate: "2h0m0s",
      members: ["db", "web"].map((name) => ({ name, version: "1", hash: "h", targets: 3, skipped: 1, batches: 2, offline: 0, at_least: "1h0m0s", estimate: "2h0m0s", warnings: name === "db" ? ["it is old"] : [] })),
    },
  };
  answers["/api/v1/rollout-groups/g1/start"] = { item: group() };
  await open("/groups/g1", "Start on 6 agents in 2 members…");
  expect(document.body.textContent).toContain("db: it is old");
  await click(button("Start on 6 agents in 2 members…"));
  await click(button("Start the group", document.querySelector("[role=dialog]")!));
  await until(() => sent.some((s) => s.path.endsWith("/start")), "the start");
  expect(sent.find((s) => s.path.endsWith("/start"))?.body).toEqual({ hash: "sha256:abc" });
});

test("the list shows each group with its members, or how to create one", async () => {
  answers["/api/v1/rollout-groups"] = { items: [group(stop("drift", "web"))], total: 1, page: 1, perPage: 100 };
  await open("/groups", "Autumn");
  const card = document.querySelector("[aria-label='Groups'] > li")!;
  expect(card.textContent).toContain("1 of 2 members done");
  expect(card.textContent).toContain("The fleet is not as previewed");
  expect(card.querySelector("a")!.getAttribute("href")).toBe("/groups/g1");
});

test("an unknown group says so", async () => {
  await open("/groups/none", "There is no such group");
});
