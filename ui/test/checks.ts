import { expect, type Locator, type Page } from "@playwright/test";
import axe from "axe-core";

/**
 * Fails on violations that axe calls serious or critical. With rules only those are checked, which
 * takes a fraction of the time.
 */
export async function expectAccessible(page: Page, what: string, rules?: string[]): Promise<void> {
  // An opening menu or dialog is half transparent for a moment, with too little contrast.
  await page.waitForFunction(() => document.getAnimations().every((a) => a.playState !== "running" || a.effect?.getTiming().iterations === Infinity));
  // Not by @axe-core/playwright, which also looks into frames, of which the console has none, and takes four times as long.
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(axe.source);
  const options: axe.RunOptions = { resultTypes: ["violations"], ...(rules && { runOnly: rules }) };
  const violations = await page.evaluate(async (options) => {
    const { violations } = await (window as unknown as { axe: typeof axe }).axe.run(document, options);
    return violations.filter((v) => v.impact === "serious" || v.impact === "critical");
  }, options);
  const bad = violations.map(
    (v) =>
      `${v.id}: ${v.help}\n${v.nodes
        .slice(0, 5)
        .map((n) => `  ${n.target.join(" ")} ${n.failureSummary ?? ""}`)
        .join("\n")}`,
  );
  expect(bad, `axe on ${what}`).toEqual([]);
}

/** Lets the page follow the system to a theme, and waits until it has, since a script changes it later than the media. */
export async function showTheme(page: Page, theme: "light" | "dark"): Promise<void> {
  await page.emulateMedia({ colorScheme: theme });
  await expect(page.locator("html")).toHaveAttribute("data-mantine-color-scheme", theme);
}

/** Collects the errors of a browser: exceptions of scripts, and what the Content-Security-Policy blocked. */
export function watchComplaints(page: Page): string[] {
  const complaints: string[] = [];
  page.on("pageerror", (error) => complaints.push(`${error.name}: ${error.message}`));
  page.on("console", (message) => {
    if (message.type() === "error" && /content security policy|refused to/i.test(message.text())) complaints.push(message.text());
  });
  return complaints;
}

/**
 * Replaces what an editor of YAML contains, as a person does it: a selection that a script makes is lost if the editor
 * gets the focus at the same time.
 */
export async function replaceYaml(editor: Locator, text: string): Promise<void> {
  await editor.press("ControlOrMeta+a");
  await editor.page().keyboard.insertText(text);
}

/** The page does not scroll sideways. */
export async function expectNoSidewaysScroll(page: Page): Promise<void> {
  const { content, window } = await page.evaluate(() => ({ content: document.documentElement.scrollWidth, window: innerWidth }));
  expect(content, "the page is wider than its window").toBeLessThanOrEqual(window);
}
