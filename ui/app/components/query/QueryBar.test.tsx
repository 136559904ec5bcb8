import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, useState } from "react";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { QuerySuggestion } from "~/api/types";
import { TYPING_PAUSE_MS } from "~/hooks/useSuggestions";
import { QueryBar } from "./QueryBar";

let root: Root;
let asked: { url: URL; answer: (items: QuerySuggestion[]) => Promise<void> }[];
let searched: (string | undefined)[];

beforeEach(async () => {
  vi.useFakeTimers();
  vi.stubGlobal("IS_REACT_ACT_ENVIRONMENT", true);
  asked = [];
  searched = [];
  vi.stubGlobal(
    "fetch",
    (path: string, { signal }: RequestInit) =>
      new Promise<Response>((resolve, reject) => {
        signal?.addEventListener("abort", () => reject(signal.reason as Error));
        asked.push({
          url: new URL(path, "http://server"),
          answer: (items) =>
            act(async () => {
              resolve(new Response(JSON.stringify({ items })));
              await vi.advanceTimersByTimeAsync(10);
            }),
        });
      }),
  );
  root = createRoot(document.body.appendChild(document.createElement("div")));
  await act(async () =>
    root.render(
      <MantineProvider env="test">
        <QueryClientProvider client={new QueryClient()}>
          <Page />
        </QueryClientProvider>
      </MantineProvider>,
    ),
  );
});

afterEach(async () => {
  await act(async () => root.unmount());
  document.body.replaceChildren();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

function Page() {
  const [value, setValue] = useState<string>();
  return (
    <QueryBar
      value={value}
      onSearch={(v) => {
        searched.push(v);
        setValue(v);
      }}
    />
  );
}

const input = () => document.querySelector<HTMLInputElement>("[role=combobox]")!;
const options = () => (input().getAttribute("aria-expanded") === "false" ? [] : [...document.querySelectorAll("[role=option]")].map((o) => o.textContent));
const pause = (ms = TYPING_PAUSE_MS) => act(() => vi.advanceTimersByTimeAsync(ms));

async function type(text: string, cursor = text.length) {
  await act(async () => {
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value")!.set!.call(input(), text);
    input().setSelectionRange(cursor, cursor);
    input().dispatchEvent(new Event("input", { bubbles: true }));
  });
}

async function press(key: string): Promise<boolean> {
  const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true });
  await act(async () => {
    input().dispatchEvent(event);
  });
  if (key === "Enter" && !event.defaultPrevented) await act(async () => input().form!.requestSubmit());
  return event.defaultPrevented;
}

const field = (text: string, from: number, to: number): QuerySuggestion => ({ kind: "field", text, from, to });

test("one request follows a pause in typing, with the cursor in bytes", async () => {
  await type("ü s");
  await pause(TYPING_PAUSE_MS - 1);
  await type("ü st");
  await pause(TYPING_PAUSE_MS - 1);
  expect(asked.map((a) => a.url.searchParams.get("q"))).toEqual([""]);
  await pause(1);
  expect(asked.map((a) => a.url.searchParams.get("q"))).toEqual(["", "ü st"]);
  expect(asked[1]!.url.searchParams.get("cursor")).toBe("5");
});

test("a late answer does not replace a newer one", async () => {
  await type("s");
  await pause();
  await type("st");
  await pause();
  const [, first, second] = asked;
  await second!.answer([field("status", 0, 2)]);
  expect(options()).toEqual(["fieldstatus"]);
  await first!.answer([field("something", 0, 1)]);
  expect(options()).toEqual(["fieldstatus"]);
});

test("Enter and Tab accept the chosen suggestion, Enter without one searches", async () => {
  await type("😀 or sta and x", 9);
  await pause();
  await asked.at(-1)!.answer([field("status", 8, 11), field("state", 8, 11)]);
  expect(await press("Tab"), "with nothing chosen Tab goes on").toBe(false);
  await press("ArrowDown");
  expect(input().getAttribute("aria-activedescendant")).toBe(document.querySelector("[role=option]")!.id);
  await press("Tab");
  expect(input().value).toBe("😀 or status and x");
  expect(input().selectionStart).toBe(12);
  expect(searched).toEqual([]);
  await press("Enter");
  expect(searched).toEqual(["😀 or status and x"]);
  expect(options()).toEqual([]);
});

test("a suggestion for another text is not accepted", async () => {
  await type("sta");
  await pause();
  await asked.at(-1)!.answer([field("status", 0, 3)]);
  await type("tags: sta");
  await press("ArrowDown");
  expect(await press("Enter")).toBe(true);
  expect(input().value).toBe("tags: sta");
  expect(searched).toEqual([]);
});

test("Escape closes the suggestions, and the slash focuses the bar", async () => {
  await type("s");
  await pause();
  await asked.at(-1)!.answer([field("status", 0, 1)]);
  expect(await press("Escape")).toBe(true);
  expect(options()).toEqual([]);
  expect(input().value).toBe("s");
  input().blur();
  window.dispatchEvent(new KeyboardEvent("keydown", { key: "/", shiftKey: true, cancelable: true }));
  expect(document.activeElement).toBe(input());
});
