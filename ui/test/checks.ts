import AxeBuilder from "@axe-core/playwright";
import { expect, type Page } from "@playwright/test";

/**
 * Fails on violations that axe calls serious or critical. With rules only those are checked, which
 * takes a fraction of the time.
 */
export async function expectAccessible(page: Page, what: string, rules?: string[]): Promise<void> {
  // An opening menu or dialog is half transparent for a moment, with too little contrast.
  await page.waitForFunction(() => document.getAnimations().every((a) => a.playState !== "running" || a.effect?.getTiming().iterations === Infinity));
  const axe = new AxeBuilder({ page });
  const { violations } = await (rules ? axe.withRules(rules) : axe).analyze();
  const bad = violations
    .filter((v) => v.impact === "serious" || v.impact === "critical")
    .map((v) => `${v.id}: ${v.help}\n${v.nodes.slice(0, 5).map((n) => `  ${n.target.join(" ")} ${n.failureSummary ?? ""}`).join("\n")}`);
  expect(bad, `axe on ${what}`).toEqual([]);
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

/** The page does not scroll sideways. */
export async function expectNoSidewaysScroll(page: Page): Promise<void> {
  const { content, window } = await page.evaluate(() => ({ content: document.documentElement.scrollWidth, window: innerWidth }));
  expect(content, "the page is wider than its window").toBeLessThanOrEqual(window);
}
