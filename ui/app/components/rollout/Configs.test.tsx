import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act } from "react";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { ConfigPreviewItem, Preview } from "~/api/types";
import { until } from "~/testing/page";
import { previewWithConfig } from "~/testing/rollout";
import { Configs } from "./Configs";

let root: Root;
let asked: string[];
let answer: Omit<ConfigPreviewItem, "agent_id" | "hostname">;

beforeEach(() => {
  vi.stubGlobal("IS_REACT_ACT_ENVIRONMENT", true);
  asked = [];
  vi.stubGlobal("fetch", async (path: string) => {
    asked.push(path);
    return new Response(JSON.stringify({ items: [{ agent_id: "a2", hostname: "web-02", ...answer }], total: 1, page: 1, perPage: 20 }));
  });
  root = createRoot(document.body.appendChild(document.createElement("div")));
});

afterEach(async () => {
  await act(async () => root.unmount());
  document.body.replaceChildren();
  vi.unstubAllGlobals();
});

const show = (preview: Preview) =>
  act(async () =>
    root.render(
      <MantineProvider env="test">
        <QueryClientProvider client={new QueryClient()}>
          <Configs preview={preview} />
        </QueryClientProvider>
      </MantineProvider>,
    ),
  );

const hosts = () => [...document.querySelectorAll("button")].map((b) => b.textContent!.trim());

/** open opens the configuration of web-02, and waits until it shows a text. */
async function open(text: string): Promise<void> {
  await act(async () => [...document.querySelectorAll("button")].find((b) => b.textContent!.includes("web-02"))!.click());
  await shows(text);
}

const shows = (text: string): Promise<void> => until(() => document.body.textContent!.includes(text), text);

test("what changes on a host is read when its configuration is opened", async () => {
  answer = { diff: "--- /etc/web.conf\n+++ /etc/web.conf\n-port 80\n+port 81\n" };
  await show(previewWithConfig(3));
  expect(hosts()).toEqual(["Configuration of web-01", "Configuration of web-02", "Configuration of web-03"]);
  expect(asked).toEqual([]);
  await open("+port 81");
  expect(asked).toEqual(["/api/v1/rollouts/r1/previews/sha256%3Aabc/configs?agent=a2"]);
  const pre = document.querySelector("pre")!;
  expect(pre.textContent).toBe(answer.diff);
  expect(pre.getAttribute("aria-label")).toBe("What changes on web-02");
});

test("a host with the same files, or that cannot get them, says so", async () => {
  answer = {};
  await show(previewWithConfig(2));
  await open("The host has these files already.");
  answer = { error: "web/t:3: .Vars.port: map has no entry" };
  await show({ ...previewWithConfig(2), hash: "sha256:def" });
  await shows("web/t:3: .Vars.port: map has no entry.");
});

test("hosts are searched, and only so many shown", async () => {
  await show(previewWithConfig(60));
  expect(hosts()).toHaveLength(50);
  expect(document.body.textContent).toContain("and 10 more: search for a host");
  const search = document.querySelector("input")!;
  const type = (text: string) =>
    act(async () => {
      Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value")!.set!.call(search, text);
      search.dispatchEvent(new Event("input", { bubbles: true }));
    });
  await type("web-59");
  expect(hosts()).toEqual(["Configuration of web-59"]);
  await type("db");
  expect(document.body.textContent).toContain("None of them matches “db”.");
});

test("a rollout without configuration files shows none", async () => {
  const p = previewWithConfig(2);
  await show({ ...p, targets: p.targets.map(({ config: _, ...t }) => t) });
  expect(document.body.textContent).not.toContain("Configuration files");
  expect(hosts()).toEqual([]);
});
