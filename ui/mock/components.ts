/** Components for the mock: their overview, and their upgrades, phase by phase. Versions from 2.6.0 on become unhealthy and are put back. */
import type { Agent, AgentComponent, ComponentSummary, UpgradeDetails, UpgradePreview } from "../app/api/types";
import { compareVersions } from "../app/util/version.ts";
import { host, iso, type MockFleet } from "./fleet.ts";

type Phase = NonNullable<NonNullable<UpgradeDetails["metadata"]>["phase"]>;

/** Each step takes a tick; the last one is repeated for as long as a host observes the version. */
const STEPS: [UpgradeDetails["state"], Phase?][] = [
  ["UPG_DOWNLOADING", "PREPARING"], ["UPG_REPLACING", "STOPPED"], ["UPG_REPLACING", "MUTATING"], ["UPG_RESTARTING", "STARTING"], ["UPG_WATCHING", "VERIFYING"],
];
const UNDONE: typeof STEPS = [...STEPS, ["UPG_ROLLBACK"]];
const TICKS_A_STEP = 4;

interface Running {
  agent: Agent;
  component: AgentComponent;
  target: string;
  actionId: string;
  ticks: number;
}

export class MockComponents {
  private running: Running[] = [];

  constructor(private readonly fleet: MockFleet, private readonly now: () => number) {}

  list(): ComponentSummary[] {
    const found = new Map<string, AgentComponent[]>();
    for (const a of this.fleet.list(false)) for (const c of a.components) if (c.name) found.set(c.name, [...(found.get(c.name) ?? []), c]);
    return [...found].map(([name, all]) => {
      const versions = [...new Set(all.map((c) => c.version ?? ""))].sort(compareVersions).reverse();
      return {
        name, runtimes: [...new Set(all.map((c) => c.runtime ?? ""))], agents: all.length, healthy: all.filter((c) => c.status === "HEALTHY").length,
        upgrading: all.filter((c) => c.upgrade_status === "started").length, failed: all.filter((c) => c.upgrade_status === "failed" || c.upgrade_status === "rolled_back").length,
        versions: versions.map((version) => ({ version, agents: all.filter((c) => (c.version ?? "") === version).length })),
      };
    });
  }

  preview(name: string, ids: string[], version: string, force: boolean): UpgradePreview {
    const items = ids.map((id) => {
      const a = this.fleet.agents.get(id);
      const c = a?.components.find((x) => x.name === name);
      const reason = c ? this.whyNot(c, version, force) : `agent ${id} reports no component ${name}: add it to the components of its policy`;
      return { agent_id: id, hostname: a ? host(a) : id, version: c?.version ?? "", will: !reason, reason };
    });
    return { version, will: items.filter((i) => i.will).length, wont: items.filter((i) => !i.will).length, items };
  }

  upgrade(name: string, ids: string[], version: string, force: boolean): string {
    const actionId = `component-${this.fleet.actions.length + 1}-6f1c2a`;
    const { items, will, wont } = this.preview(name, ids, version, force);
    this.fleet.actions.unshift({
      actionId, type: "UPGRADE", component: name, status: "IN_PROGRESS", outcome: "IN_PROGRESS", version, creationTime: iso(this.now()), expiration: iso(this.now() + 30 * 864e5),
      nbAgentsActioned: ids.length, nbAgentsActionCreated: will, nbAgentsAck: 0, nbAgentsDone: 0, nbAgentsFailed: wont, hasRolloutPeriod: false, created_by: "first admin key", latestErrors: [],
    });
    this.fleet.emit("action.created", actionId, {}, "first admin key");
    for (const { agent_id, will: does } of items) {
      const agent = this.fleet.agents.get(agent_id);
      const component = agent?.components.find((c) => c.name === name);
      if (!does || !agent || !component) continue;
      Object.assign(component, { upgrade_status: "started", upgrade_action_id: actionId, desired_version: version, upgrade_details: { target_version: version, action_id: actionId, state: "UPG_REQUESTED" } });
      this.running.push({ agent, component, target: version, actionId, ticks: 0 });
      this.changed(agent, name);
    }
    return actionId;
  }

  tick(): void {
    for (const r of [...this.running]) this.advance(r);
  }

  private advance(r: Running): void {
    const c = r.component;
    const step = Math.floor(r.ticks++ / TICKS_A_STEP);
    const bad = compareVersions(r.target, "2.6.0") >= 0;
    const failure = { failed_state: "UPG_WATCHING", error_msg: `version ${r.target} is not healthy: check answers fails: 503 Service Unavailable` } as const;
    const steps = bad ? UNDONE : STEPS;
    if (step < steps.length) {
      const [state, phase] = steps[step]!;
      if (c.upgrade_details?.metadata?.phase === phase) return;
      c.upgrade_details = { target_version: r.target, action_id: r.actionId, state, metadata: phase ? { phase } : failure };
      return this.changed(r.agent, c.name!);
    }
    this.running = this.running.filter((x) => x !== r);
    const action = this.fleet.actions.find((a) => a.actionId === r.actionId)!;
    action.nbAgentsAck++;
    if (bad) {
      Object.assign(c, { upgrade_status: "rolled_back", desired_version: c.version, upgrade_details: { target_version: r.target, action_id: r.actionId, state: "UPG_FAILED", metadata: failure } });
      action.nbAgentsFailed++;
    } else {
      const kept = [...(c.rollbacks ?? []), c.version].filter((v): v is string => !!v && v !== r.target);
      Object.assign(c, { version: r.target, desired_version: r.target, last_healthy_version: r.target, rollbacks: kept, since: iso(this.now()), upgraded_at: iso(this.now()), upgrade_status: undefined, upgrade_details: undefined });
      action.nbAgentsDone++;
    }
    if (action.nbAgentsDone + action.nbAgentsFailed >= action.nbAgentsActioned) action.status = action.outcome = action.nbAgentsDone > 0 ? "COMPLETE" : "FAILED";
    this.changed(r.agent, c.name!);
    this.fleet.emit("action.result", r.actionId, { agent_id: r.agent.id });
  }

  private changed(a: Agent, component: string): void {
    this.fleet.emit("agent.component", a.id, { agent: structuredClone(a), component });
  }

  private whyNot(c: AgentComponent, version: string, force: boolean): string | undefined {
    if (!this.fleet.componentPackages.some((p) => p.component === c.name && p.version === version)) return `there is no package of component ${c.name} in version ${version} for linux/amd64`;
    if (c.upgrade_status === "started") return `component ${c.name} is already being upgraded to ${c.upgrade_details?.target_version}: wait, or cancel that`;
    if (force || !c.version) return undefined;
    const d = compareVersions(version, c.version);
    if (d === 0) return `component ${c.name} has version ${version} already`;
    return d < 0 ? `component ${c.name} has version ${c.version}, which is later than ${version}: force it to go down` : undefined;
  }
}
