/** Times as the browser sees them: an element is shown when the frame with it has been painted. */
import { writeFileSync } from "node:fs";
import type { Page } from "@playwright/test";

/** Figures in milliseconds by name, in the order of the table. report prints them, and writes them to MUSTER_UI_FIGURES, a file. */
export function startFigures(): { figures: [string, number[]][]; report: () => void } {
  const figures: [string, number[]][] = [];
  const report = () => {
    const file = process.env.MUSTER_UI_FIGURES;
    if (file) writeFileSync(file, JSON.stringify(figures.map(([name, ms]) => ({ name, ms }))));
    for (const [name, ms] of figures) {
      const sorted = ms.toSorted((a, b) => a - b);
      const at = (part: number) => Math.round(sorted[Math.ceil(sorted.length * part) - 1] ?? 0);
      console.log(`${name}: median ${at(0.5)} ms, p95 ${at(0.95)} ms, worst ${at(1)} ms (${ms.length})`);
    }
  };
  return { figures, report };
}

interface Watched extends Window {
  inputs: number[];
  tasks: number[];
}

/** Collects the page's inputs with the time to their next paint (Event Timing), and its long tasks, those of 50 ms and more. */
export async function watchThePage(page: Page): Promise<void> {
  await page.addInitScript(() => {
    const w = window as unknown as Watched;
    w.inputs = [];
    w.tasks = [];
    new PerformanceObserver((list) => {
      for (const e of list.getEntries()) if ((e as PerformanceEntry & { interactionId?: number }).interactionId) w.inputs.push(e.duration);
    }).observe({ type: "event", buffered: true, durationThreshold: 16 } as PerformanceObserverInit);
    new PerformanceObserver((list) => w.tasks.push(...list.getEntries().map((e) => e.duration))).observe({ type: "longtask", buffered: true });
  });
}

/** Milliseconds from the start of a navigation until an element is painted. */
export async function openedIn(page: Page, url: string, selector: string): Promise<number> {
  await page.goto(url, { waitUntil: "commit" });
  return page.evaluate(
    (wanted) =>
      new Promise<number>((resolve, reject) => {
        const look = () => {
          if (performance.now() > 30_000) reject(new Error(`${wanted} has not appeared`));
          else if (document.querySelector(wanted)) requestAnimationFrame(() => setTimeout(() => resolve(performance.now())));
          else requestAnimationFrame(look);
        };
        look();
      }),
    selector,
  );
}

/** When the page sent its first request whose path begins so, and had the answer, in milliseconds from the start of the navigation. */
export const requestOf = (page: Page, path: string): Promise<{ asked: number; answered: number }> =>
  page.evaluate((begin) => {
    const e = performance.getEntriesByType("resource").find((r) => r.name.startsWith(location.origin + begin)) as PerformanceResourceTiming;
    return { asked: e.startTime, answered: e.responseEnd };
  }, path);

/** Milliseconds from the first input of act until an element appears, has another text, or is gone, on the screen. */
export async function shownIn(page: Page, act: () => Promise<unknown>, selector: string, what: "appears" | "changes" | "goes"): Promise<number> {
  await page.evaluate(
    ([wanted, how]) => {
      const text = () => document.querySelector(wanted!)?.textContent;
      const before = text();
      const w = window as unknown as { shown: Promise<number> };
      w.shown = new Promise<number>((resolve, reject) => {
        const started = (event: Event) => {
          for (const type of ["pointerdown", "keydown", "input"]) removeEventListener(type, started, true);
          const look = () => {
            const now = text();
            if (how === "appears" ? now !== undefined : how === "goes" ? now === undefined : now !== before)
              requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - event.timeStamp)));
            else if (performance.now() - event.timeStamp > 30_000) reject(new Error(`${wanted}: no change within 30 s`));
            else requestAnimationFrame(look);
          };
          look();
        };
        for (const type of ["pointerdown", "keydown", "input"]) addEventListener(type, started, true);
      });
    },
    [selector, what] as const,
  );
  await act();
  return page.evaluate(() => (window as unknown as { shown: Promise<number> }).shown);
}

/** The durations of the inputs so far, in milliseconds, in steps of 8; those below 16 are not counted. */
export const slowestInputs = (page: Page): Promise<number[]> => page.evaluate(() => (window as unknown as Watched).inputs.splice(0));

/** The durations of the long tasks since the last call. */
export const longTasks = (page: Page): Promise<number[]> => page.evaluate(() => (window as unknown as Watched).tasks.splice(0));
