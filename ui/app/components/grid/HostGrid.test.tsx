import { MantineProvider } from "@mantine/core";
import { act } from "react";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { HostGrid } from "./HostGrid";

let root: Root;
const onPick = vi.fn();
const onPickBatch = vi.fn();
const onShow = vi.fn();

beforeEach(async () => {
  vi.stubGlobal("IS_REACT_ACT_ENVIRONMENT", true);
  Object.defineProperty(document, "fonts", { value: new EventTarget(), configurable: true }); // happy-dom has none
  root = createRoot(document.body.appendChild(document.createElement("div")));
  await act(async () =>
    root.render(
      <MantineProvider env="test">
        <HostGrid
          batches={[0, 0, 1]}
          states={["succeeded", "failed", "upgrading"]}
          progress={["committed", "failed", "downloading"]}
          hostnames={["web-1", "web-2", "web-3"]}
          agentIds={["a1", "a2", "a3"]}
          onPick={onPick}
          onPickBatch={onPickBatch}
          onShow={onShow}
          shown={["failed"]}
          batchNames={{ 0: "Canary" }}
        />
      </MantineProvider>,
    ),
  );
});

afterEach(async () => {
  await act(async () => root.unmount());
  document.body.replaceChildren();
  vi.unstubAllGlobals();
  vi.clearAllMocks();
});

const grid = () => document.querySelector<HTMLElement>("[role=application]")!;
const press = (key: string) => act(async () => void grid().dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })));

it("is walked through and picked from with the keyboard, and announces where it is", async () => {
  await press("ArrowDown");
  expect(document.querySelector("[role=status]")!.textContent).toBe("web-2: Failed. Canary.");
  await press("Enter");
  expect(onPick).toHaveBeenCalledWith("a2");
  await press("PageDown");
  expect(document.querySelector("[role=status]")!.textContent).toBe("web-3: Downloading. Batch 2.");
});

it("names its batches with their counts, and picks them", async () => {
  const heads = [...document.querySelectorAll<HTMLElement>("[role=toolbar] button")];
  expect(heads.map((h) => h.getAttribute("aria-label"))).toEqual(["Canary, 2 hosts: 1 failed, 1 committed", "Batch 2, 1 host: 1 upgrading"]);
  expect(heads.map((h) => h.tabIndex)).toEqual([0, -1]);
  await act(async () => heads[1]!.click());
  expect(onPickBatch).toHaveBeenCalledWith(1);
});

it("filters by its legend", async () => {
  const entry = (text: string) => [...document.querySelectorAll("button")].find((b) => b.textContent!.startsWith(text))!;
  expect(entry("Failed").getAttribute("aria-pressed")).toBe("true");
  await act(async () => entry("Committed").click());
  expect(onShow).toHaveBeenCalledWith(["committed", "failed"]);
  await act(async () => entry("Show all hosts").click());
  expect(onShow).toHaveBeenLastCalledWith([]);
});
