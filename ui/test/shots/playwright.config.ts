// Takes the pictures of README and documents: `go tool mage shots`. MUSTER_UI_SHOTS is the folder for them; the rest is as for the
// specs of the console.
import { defineConfig } from "@playwright/test";
import { shared } from "../playwright.shared";

export default defineConfig({
  ...shared,
  testDir: ".",
  testMatch: "*.spec.ts",
  timeout: 420_000, // the rollout has to be under way
  outputDir: "../../test-results",
});
