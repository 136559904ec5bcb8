// Against a real server: MUSTER_UI_LOGIN is its login link, MUSTER_UI_VERSION a
// published version that all its agents can be upgraded to, MUSTER_UI_BROKEN
// (optional) one that will be rolled back, MUSTER_UI_ARTIFACTS a folder.
import { defineConfig } from "@playwright/test";
import { shared } from "./playwright.shared";

export default defineConfig({
  ...shared,
  testDir: ".",
  testMatch: "upgrade.spec.ts",
  // A download, a restart and a grace period of some seconds, twice.
  timeout: 600_000,
  outputDir: process.env.MUSTER_UI_ARTIFACTS ? `${process.env.MUSTER_UI_ARTIFACTS}/playwright` : "../test-results",
});
