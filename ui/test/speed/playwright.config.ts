// How fast the console is with a large fleet: `go tool mage bench` starts the fleet and writes the table of testing/suites/bench/CONSOLE.md.
// MUSTER_UI_FIGURES is the file for the figures; the rest is as for the specs of the console.
import { defineConfig } from "@playwright/test";
import { shared } from "../playwright.shared";

export default defineConfig({
  ...shared,
  testDir: ".",
  testMatch: "*.spec.ts",
  timeout: 300_000, // each page is opened many times
  outputDir: "../../test-results",
  use: { ...shared.use, viewport: { width: 1440, height: 900 }, trace: "off" }, // recording a trace would slow the page
});
