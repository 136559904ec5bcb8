// Against a real server with a simulated fleet, which testing/suites/console starts: MUSTER_UI_LOGIN is its login link, MUSTER_UI_ARTIFACTS a
// folder. By hand: `go tool mage fleet`, then `npm run e2e:console` with the link that it prints.
import { defineConfig } from "@playwright/test";
import { shared } from "../playwright.shared";

export default defineConfig({
  ...shared,
  testDir: ".",
  workers: 2,
  // The stories share hosts, so they follow one another; the pages' checks change nothing.
  projects: [
    { name: "stories", testMatch: ["complaints.spec.ts", "points.spec.ts"], workers: 1 },
    { name: "pages", testMatch: "pages.spec.ts", workers: 1 },
  ],
  timeout: 150_000, // axe on a long table, on a busy machine
  outputDir: process.env.MUSTER_UI_ARTIFACTS ? `${process.env.MUSTER_UI_ARTIFACTS}/playwright` : "../../test-results",
});
