/** Where each page's documentation is. */

const BASE = "https://github.com/muster-fleet/muster/blob/main/ui/docs/";

const pages = {
  agents: "start.md",
  rollouts: "rollouts.md",
  fleets: "fleets.md",
  server: "operate.md",
  packages: "secure.md",
  agent: "troubleshoot.md",
  trust: "secure.md",
  start: "start.md",
  security: "secure.md",
} as const;

export type DocsPage = keyof typeof pages;

export const docsUrl = (page: DocsPage): string => BASE + pages[page];
