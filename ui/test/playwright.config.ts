// Against a real server: MUSTER_UI_LOGIN is its login link, MUSTER_UI_VERSION a
// published version that all its agents can be upgraded to, MUSTER_UI_BROKEN
// (optional) one that will be rolled back, MUSTER_UI_ROLLOUT one that a rollout
// brings to all of them afterwards, MUSTER_UI_QUERY (optional) one that a query
// brings to those that match at the end, before the others are unenrolled, MUSTER_UI_ARTIFACTS a folder.
// MUSTER_UI_PAGE (optional) is where the component named page of their policy serves its page once
// one of them has installed it, and MUSTER_UI_PAGE_VERSIONS three versions of it, of which the last
// ends at once.
import { defineConfig } from "@playwright/test";
import { shared } from "./playwright.shared";

export default defineConfig({
  ...shared,
  testDir: ".",
  // One after the other: all change the same hosts.
  projects: [
    { name: "upgrade", testMatch: "upgrade.spec.ts" },
    ...(process.env.MUSTER_UI_PAGE ? [{ name: "component", testMatch: "component.spec.ts", dependencies: ["upgrade"] }] : []),
    { name: "rollouts", testMatch: "rollouts.spec.ts", dependencies: ["upgrade"] },
    ...(process.env.MUSTER_UI_QUERY ? [{ name: "query", testMatch: "query.spec.ts", dependencies: ["rollouts"] }] : []),
  ],
  // A download, a restart and a grace period of some seconds, twice.
  timeout: 600_000,
  outputDir: process.env.MUSTER_UI_ARTIFACTS ? `${process.env.MUSTER_UI_ARTIFACTS}/playwright` : "../test-results",
});
