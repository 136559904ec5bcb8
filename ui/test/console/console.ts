/** What the specs of the console share: the server, a logged-in page, and the ids of what the fleet has. */
import { expect, type Page, test as plain } from "@playwright/test";
import { shared } from "../playwright.shared";

const login = new URL(process.env.MUSTER_UI_LOGIN ?? "https://localhost:8221/login");

export const base = login.origin;
const key = new URLSearchParams(login.hash.slice(1)).get("key") ?? "";
const headers = { Authorization: `ApiKey ${key}`, "kbn-xsrf": "console" };

/**
 * The tests of a worker have one page, logged in, which each gets as if it were new: a page of its own would load and compile the
 * whole console first, which takes longer than most tests.
 */
export const test = plain.extend<object, { only: Page }>({
  only: [
    async ({ browser }, use) => {
      const { ignoreHTTPSErrors, locale, viewport, actionTimeout } = shared.use!;
      const page = await browser.newPage({ ignoreHTTPSErrors, locale, viewport });
      page.setDefaultTimeout(actionTimeout!);
      await logIn(page);
      await use(page);
      await page.close();
    },
    { scope: "worker" },
  ],
  // Before a test and not after it, so that the report of a failure shows the page.
  page: async ({ only: page }, use) => {
    for (const event of ["console", "pageerror", "request"] as const) page.removeAllListeners(event);
    await page.unrouteAll();
    await page.goto(`${base}/favicon.svg`); // of the console's origin, without its scripts
    await page.evaluate(() => {
      localStorage.clear();
      sessionStorage.clear();
    });
    await page.emulateMedia({ colorScheme: "light", reducedMotion: "no-preference" });
    await page.setViewportSize(shared.use!.viewport!);
    await page.mouse.move(0, 0);
    await use(page);
  },
});

/** Logs the page in, without the login page. */
export async function logIn(page: Page): Promise<void> {
  const answer = await page.context().request.post(`${base}/api/v1/session`, { data: { api_key: key }, headers: { "kbn-xsrf": "console", Origin: base } });
  expect(answer.ok(), `the login was answered ${answer.status()}`).toBe(true);
}

/** Reads from the admin API. */
export async function get<T>(page: Page, path: string): Promise<T> {
  const answer = await page.context().request.get(base + path, { headers });
  expect(answer.ok(), `${path} was answered ${answer.status()}`).toBe(true);
  return (await answer.json()) as T;
}

/** Opens a page and waits until it has its content. */
export async function open(page: Page, path: string): Promise<void> {
  await page.goto(base + path);
  await expect(page.getByRole("heading", { level: 1 }), `${path} has one title`).toHaveCount(1);
  await settled(page);
}

/** Waits until nothing of the page is loading. */
export async function settled(page: Page): Promise<void> {
  await expect(page.locator("[role=status][aria-busy=true]")).toHaveCount(0);
}

/** Collects what a browser complains about: exceptions, and errors in the console. */
export function complaintsOf(page: Page): string[] {
  const complaints: string[] = [];
  page.on("pageerror", (error) => complaints.push(`${error.name}: ${error.message}`));
  page.on("console", (message) => {
    // The browser calls each refusal an error. That of a plan which is not complete yet is shown at its line.
    if (/\/api\/v1\/rollout_preview\b/.test(message.location().url) && message.text().includes("status of 400")) return;
    if (message.type() === "error") complaints.push(`${message.text()} (${message.location().url})`);
  });
  return complaints;
}
