/** Where each page's documentation is. */

const BASE = "https://github.com/muster-fleet/muster/blob/main/";

const pages = {
  agents: "README.md",
  rollouts: "server/rollout/DESIGN.md",
  fleets: "server/spec/DESIGN.md",
  server: "server/DESIGN.md",
  packages: "packaging/DESIGN.md",
  agent: "agent/DESIGN.md",
  trust: "server/artifact/repository/DESIGN.md",
  start: "README.md",
  security: "server/SECURITY.md",
} as const;

export type DocsPage = keyof typeof pages;

export const docsUrl = (page: DocsPage): string => BASE + pages[page];
