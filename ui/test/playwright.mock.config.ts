// Against the mock fleet, with the built pages: run "npm run build" first.
import { defineConfig } from "@playwright/test";
import { shared } from "./playwright.shared";

export const PORTS = { three: 4281, twelve: 4282, none: 4283, many: 4284, rollouts: 4285, fleets: 4286 } as const;
const sizes: Record<keyof typeof PORTS, number> = { three: 3, twelve: 12, none: 0, many: 5000, rollouts: 12, fleets: 12 };

process.env.MUSTER_UI_LOGIN ??= `http://localhost:${PORTS.three}/login#key=bW9jazprZXk=`;
process.env.MUSTER_UI_VERSION ??= "1.1.0";
process.env.MUSTER_UI_BROKEN ??= "1.2.0";

export default defineConfig({
  ...shared,
  testDir: ".",
  testMatch: ["upgrade.spec.ts", "pages.mock.spec.ts", "rollouts.mock.spec.ts", "fleets.mock.spec.ts"],
  timeout: 120_000,
  outputDir: "../test-results",
  webServer: Object.entries(PORTS).map(([name, port]) => ({
    command: `npx vite preview --port ${port} --strictPort`,
    cwd: "..",
    port,
    env: { MUSTER_MOCK_AGENTS: String(sizes[name as keyof typeof PORTS]) },
    reuseExistingServer: false,
  })),
});
