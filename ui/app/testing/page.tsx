/** Pages in tests: the whole router, over answers of the API that the test gives by path. */
import { MantineProvider } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { act } from "react";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, expect, vi } from "vitest";
import { makeRouter } from "~/router";

class NoEvents extends EventTarget {
  close() {}
}

export interface Pages {
  /** By path; a Response is answered as it is, and a path without an answer with 404. */
  answers: Record<string, unknown>;
  /** The changes that the page has requested. */
  sent: { path: string; body: unknown }[];
  /** open shows a page, and waits until it shows a text. */
  open: (path: string, shows: string) => Promise<void>;
}

/** pages gives each test of a file a new browser. */
export function pages(): Pages {
  let root: Root;
  const page: Pages = { answers: {}, sent: [], open };

  beforeEach(() => {
    vi.stubGlobal("IS_REACT_ACT_ENVIRONMENT", true);
    vi.stubGlobal("EventSource", NoEvents);
    vi.stubGlobal("scrollTo", () => {});
    Object.defineProperty(document, "fonts", { value: new EventTarget(), configurable: true }); // happy-dom has none
    page.sent = [];
    page.answers = {
      "/api/v1/session": { key_id: "k", name: "kim", expires_at: "2036-01-01T00:00:00Z" },
      "/api/v1/server": {},
      "/api/v1/incidents": { items: [], total: 0, page: 1, perPage: 1 },
      "/api/v1/audit": { items: [], total: 0, page: 1, perPage: 100 },
    };
    vi.stubGlobal("fetch", async (url: string, { method, body }: RequestInit) => {
      const path = new URL(url, "http://server").pathname;
      if (method !== "GET") page.sent.push({ path, body: body ? JSON.parse(body as string) : undefined });
      const answer = page.answers[path];
      if (answer instanceof Response) return answer.clone();
      return answer === undefined ? refusal(404, `no ${path}`) : new Response(JSON.stringify(answer));
    });
    root = createRoot(document.body.appendChild(document.createElement("div")));
  });

  afterEach(async () => {
    notifications.clean(); // the messages are the module's, not the page's
    await act(async () => root.unmount());
    document.body.replaceChildren();
    vi.unstubAllGlobals();
  });

  async function open(path: string, shows: string): Promise<void> {
    window.history.replaceState(null, "", path);
    const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
    await act(async () =>
      root.render(
        <MantineProvider env="test">
          <QueryClientProvider client={client}>
            <RouterProvider router={makeRouter(client)} />
          </QueryClientProvider>
        </MantineProvider>,
      ),
    );
    await until(() => document.body.textContent?.includes(shows) ?? false, shows);
  }
  return page;
}

/** An error of the API. */
export const refusal = (statusCode: number, message: string): Response =>
  new Response(JSON.stringify({ statusCode, error: "refused", message }), { status: statusCode });

/** Pages are shown within milliseconds; a machine that builds and tests everything else at the same time may take seconds. */
const UNTIL_MS = 20_000;

export async function until(holds: () => boolean, what: string): Promise<void> {
  for (const end = Date.now() + UNTIL_MS; !holds() && Date.now() < end; )
    await act(async () => {
      await new Promise((resolve) => setTimeout(resolve, 10));
    });
  expect(holds(), `${what}: ${document.body.textContent}`).toBe(true);
}

/** By its text, or else by its name. */
export const button = (name: string, within: ParentNode = document): HTMLButtonElement =>
  [...within.querySelectorAll("button")].find((b) => b.textContent === name || b.getAttribute("aria-label") === name)!;

export const click = (b: HTMLElement): Promise<void> => act(async () => b.click());

export async function type(field: HTMLTextAreaElement | HTMLInputElement, text: string): Promise<void> {
  await act(async () => {
    Object.getOwnPropertyDescriptor(field instanceof HTMLInputElement ? HTMLInputElement.prototype : HTMLTextAreaElement.prototype, "value")!.set!.call(
      field,
      text,
    );
    field.dispatchEvent(new Event("input", { bubbles: true }));
  });
}
