/** An agent for tests: healthy, on 1.0.0, with the given changes. */
import type { Agent, AgentComponent, UpgradeDetails } from "~/api/types";

export function agent(change: Partial<Agent> & { host?: string; version?: string } = {}): Agent {
  const { host = "web-01", version = "1.0.0", ...rest } = change;
  const id = rest.id ?? `id-of-${host}`;
  return {
    id,
    type: "PERMANENT",
    active: true,
    status: "online",
    enrolled_at: "2026-01-01T10:00:00Z",
    policy_id: "default",
    last_checkin: "2026-01-02T10:00:00Z",
    agent: { id, version },
    local_metadata: { host: { hostname: host, architecture: "amd64" }, os: { name: "Debian GNU/Linux" }, elastic: { agent: { upgradeable: true } } },
    tags: [],
    packages: [],
    components: [],
    upgrade_started_at: null,
    upgraded_at: null,
    upgrade_status: null,
    upgrade_details: null,
    ...rest,
  };
}

export function details(state: UpgradeDetails["state"], metadata: UpgradeDetails["metadata"] = {}): UpgradeDetails {
  return { target_version: "1.1.0", action_id: "action-1", state, metadata };
}

/** A component that an agent runs, healthy on 2.4.0, with the given changes. */
export function component(change: Partial<AgentComponent> = {}): AgentComponent {
  return {
    id: "web-server",
    type: "component",
    status: "HEALTHY",
    message: "Running",
    name: "web-server",
    runtime: "systemd",
    version: "2.4.0",
    desired_version: "2.4.0",
    last_healthy_version: "2.4.0",
    rollbacks: ["2.3.0"],
    ...change,
  };
}
