/** Serves the mock fleet under /api of Vite's own servers. It is in no build. */
import type { Connect, Plugin } from "vite";
import { MockComponents } from "./components.ts";
import { MockDeclared } from "./declared.ts";
import { MockFleet } from "./fleet.ts";
import { MockRollouts } from "./rollouts.ts";
import { answer } from "./server.ts";

/** MUSTER_MOCK_AGENTS=5000 npm run dev  shows a large fleet; 0 an empty one. */
const DEFAULT_AGENTS = 12;
const TICK_MS = 350;

export function mockFleet(): Plugin {
  const start = (middlewares: Connect.Server, stopped: (stop: () => void) => void) => {
    const fleet = new MockFleet(Date.now, Number(process.env.MUSTER_MOCK_AGENTS ?? DEFAULT_AGENTS));
    const rollouts = new MockRollouts(fleet, Date.now);
    const components = new MockComponents(fleet, Date.now);
    const declared = new MockDeclared(fleet.agents, Date.now, (name) => fleet.emit("fleet.changed", name, {}, "first admin key"));
    const tick = () => {
      fleet.tick();
      components.tick();
      rollouts.tick();
    };
    const timer = setInterval(tick, TICK_MS).unref();
    stopped(() => clearInterval(timer));
    middlewares.use((req, res, next) => {
      if (!req.url?.startsWith("/api/")) return next();
      answer({ fleet, components, declared }, rollouts, req, res).catch(next);
    });
  };
  return {
    name: "muster-mock-fleet",
    configureServer: (s) => start(s.middlewares, (stop) => s.httpServer?.on("close", stop)),
    configurePreviewServer: (s) => start(s.middlewares, (stop) => s.httpServer.on("close", stop)),
  };
}
