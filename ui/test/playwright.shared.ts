import type { PlaywrightTestConfig } from "@playwright/test";

/** The settings of every browser run: Debian's own Chromium, no network but localhost, no retries. */
export const shared: PlaywrightTestConfig = {
  fullyParallel: false,
  workers: 1,
  retries: 0,
  forbidOnly: !!process.env.CI,
  reporter: [["list"]],
  use: {
    headless: true,
    ignoreHTTPSErrors: true,
    locale: "en-GB",
    viewport: { width: 1280, height: 800 },
    actionTimeout: 15_000,
    launchOptions: {
      executablePath: process.env.MUSTER_CHROMIUM || "/usr/bin/chromium",
      args: [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
      ],
    },
    screenshot: "only-on-failure",
    trace: { mode: "retain-on-failure", screenshots: false }, // a picture of each change takes half of the time
  },
  expect: { timeout: 15_000 },
};
