/**
 * A simulated fleet, to look at the pages without a server. It uses the types of the admin API;
 * ../DESIGN.md lists how it differs from a server.
 */
import type {
  ActionStatus, AdminKey, Agent, EnrollmentKey, FleetEvent, KnownServer, Package, Policy, PolicyComponent, PublisherKey, RollbackPreview, UnenrollPreview, UpgradePreview, UpgradeState, Watch,
} from "../app/api/types";
import { compareVersions } from "../app/util/version.ts";

/** What the versions of the mock do to an agent. */
export const VERSIONS = {
  "1.0.0": "good",
  "1.1.0": "good",
  "1.2.0": "crashes",
  "1.3.0": "unhealthy",
} as const;

interface Running {
  agentId: string;
  actionId: string;
  from: string;
  target: string;
  step: number;
  wait: number;
  percent: number;
  tries: number;
}

/** How long hosts of the mock keep the previous version: a week. */
const KEEP_MS = 7 * 864e5;

const WEB_SERVER: PolicyComponent = {
  name: "web-server", runtime: "systemd", version: "2.4.0", server_config: true, variables: { port: "8080" },
  health: { wait_seconds: 300, max_restarts: 2, checks: [{ name: "answers", http: "http://127.0.0.1:8080/health" }] },
};
const CACHE: PolicyComponent = {
  name: "cache", runtime: "docker", artifact: { image: "registry.example.com/cache@sha256:3f1c5a2e9b7d4c60813fa2e9b7d4c60813fa2e9b7d4c60813fa2e9b7d4c60813" },
};

const HOSTS = ["web-01", "web-02", "web-03", "api-01", "api-02", "db-01", "db-02", "cache-01", "edge-ams-01", "edge-fra-01", "build-01", "build-02"];

export class MockFleet {
  agents = new Map<string, Agent>();
  actions: ActionStatus[] = [];
  packages: Package[] = []; // of agents
  componentPackages: Package[] = [];
  policies: Policy[] = [];
  keys: EnrollmentKey[] = [];
  adminKeys: AdminKey[] = [];
  servers: KnownServer[] = [];
  publisherKeys: PublisherKey[] = [];
  private running: Running[] = [];
  private events: FleetEvent[] = [];
  private listeners = new Set<(e: FleetEvent) => void>();
  private seq = 0;
  private ids = 0;

  constructor(private now: () => number, size: number) {
    this.policies = [{ ...policy("default", "Default policy", now()), components: [WEB_SERVER] }, { ...policy("edge", "Edge sites", now()), components: [WEB_SERVER, CACHE] }];
    this.publisherKeys = [{ id: "a1b2c3d4e5f60718", public_key: "RWQYB/bl1MOyoZ1bXvVnyPtnLrPOVTvd6EWXOkrQfGvZxJDvmKs4Ip9E", name: "release 2026", added_at: iso(now() - 9e7), added_by: "first admin key" }];
    this.packages = Object.keys(VERSIONS).flatMap((v, i) => ["amd64", "arm64"].map((arch) => pkg(v, arch, now() - (4 - i) * 36e5)));
    this.componentPackages = [...["2.3.0", "2.5.0", "2.6.0"].map((v, i) => ({ ...pkg(v, "amd64", now() - (4 - i) * 36e5), file: `muster-component-web-server-${v}-linux-amd64.tar.gz`, component: "web-server", runtime: "systemd" })), { ...pkg("2.4.0", "amd64", now() - 36e5), file: "muster-component-web-2.4.0-linux-amd64.tar.gz", component: "web", runtime: "systemd" }];
    for (let i = 0; i < size; i++) {
      const a = this.agent(i);
      this.agents.set(a.id, a);
    }
    const server = { schema: 10, started_at: iso(now() - 9e8), seen_at: iso(now()), away: false, agents_url: "https://muster.example.com:8220", parked: 6 };
    this.servers = [
      { ...server, id: "7gq2sd6xk5n4v3m2b1c9z8y7wt", host: "srv-1", version: "1.0.0", admin_url: "https://srv-1.example.com:8221" },
      { ...server, id: "4m2b1c9z8y7wt7gq2sd6xk5n4v", host: "srv-2", version: "1.0.0", admin_url: "https://srv-2.example.com:8221", away: true, seen_at: iso(now() - 6e6) },
    ];
    this.adminKeys = [{ id: "first", active: true, name: "first admin key", created_at: iso(now() - 9e8), created_by: "muster", last_used_at: iso(now()) }];
    if (size > 0) this.keys.push(this.key("first hosts", "default", now() - 86_400_000));
  }

  tick(): void {
    for (const r of [...this.running]) this.advance(r);
    for (const a of this.agents.values()) {
      if (a.status !== "offline" && a.active) a.last_checkin = iso(this.now() - (hash(a.id) % 20) * 1000);
    }
  }

  list(showInactive: boolean): Agent[] {
    return [...this.agents.values()].filter((a) => showInactive || !["inactive", "unenrolled"].includes(a.status));
  }

  preview(ids: string[], version: string, force: boolean): UpgradePreview {
    const items = ids.map((id) => {
      const a = this.agents.get(id);
      if (!a) return { agent_id: id, hostname: id, version: "", will: false, reason: "There is no such agent." };
      const reason = this.whyNot(a, version, force);
      const offline = a.status === "offline" ? "It is offline and upgrades when it is back." : undefined;
      return { agent_id: id, hostname: host(a), version: a.agent.version, will: !reason, reason: reason ?? offline };
    });
    return { version, will: items.filter((i) => i.will).length, wont: items.filter((i) => !i.will).length, items };
  }

  /** With stagger the agents start one after the other, so many ticks apart: those that have not started can still be withdrawn. */
  upgrade(ids: string[], version: string, force: boolean, start?: string, rollout?: number, stagger = 0): string {
    const actionId = this.id("action");
    const preview = this.preview(ids, version, force);
    const action: ActionStatus = {
      actionId, type: "UPGRADE", status: "IN_PROGRESS", outcome: "IN_PROGRESS", version, creationTime: iso(this.now()), startTime: start ?? iso(this.now()),
      expiration: iso(this.now() + 30 * 864e5), nbAgentsActioned: ids.length, nbAgentsActionCreated: preview.will, nbAgentsAck: 0, nbAgentsDone: 0,
      nbAgentsFailed: 0, hasRolloutPeriod: !!rollout, created_by: "first admin key", latestErrors: [],
    };
    this.actions.unshift(action);
    this.emit("action.created", actionId, {}, "first admin key");
    const later = start && Date.parse(start) > this.now();
    for (const [n, item] of preview.items.entries()) {
      const a = this.agents.get(item.agent_id);
      if (!item.will || !a) {
        this.finish(actionId, item.agent_id, item.reason ?? "refused");
        continue;
      }
      a.upgrade_details = { target_version: version, action_id: actionId, state: later ? "UPG_SCHEDULED" : "UPG_REQUESTED", metadata: later ? { scheduled_at: start } : {} };
      a.upgrade_started_at = later ? start : iso(this.now());
      a.upgraded_at = null;
      a.upgrade_status = "started";
      a.upgrade_rollback = undefined;
      if (!later && a.status !== "offline") a.status = "updating";
      this.changed(a);
      if (!later && a.status !== "offline") this.running.push({ agentId: a.id, actionId, from: a.agent.version, target: version, step: 0, wait: (hash(a.id) % 4) + n * stagger, percent: 0, tries: 0 });
    }
    return actionId;
  }

  previewRollback(ids: string[]): RollbackPreview {
    const items = ids.map((id) => {
      const a = this.agents.get(id);
      if (!a) return { agent_id: id, hostname: id, version: "", will: false, reason: `Agent ${id} not found` };
      const r = this.verdict(a)!;
      return { agent_id: id, hostname: host(a), version: a.agent.version, will: r.available, to: r.version, valid_until: r.valid_until, reason: r.reason };
    });
    return { will: items.filter((i) => i.will).length, wont: items.filter((i) => !i.will).length, items };
  }

  rollback(ids: string[]): string[] {
    const items = this.previewRollback(ids).items;
    const versions = [...new Set(items.flatMap((i) => (i.will ? [i.to!] : [])))].sort(compareVersions).reverse();
    return versions.map((version, n) => this.goBack(version, items.filter((i) => i.to === version || (n === 0 && !i.will)).map((i) => i.agent_id)));
  }

  private goBack(version: string, ids: string[]): string {
    const actionId = this.id("action");
    this.actions.unshift({
      actionId, type: "UPGRADE", rollback: true, status: "IN_PROGRESS", outcome: "IN_PROGRESS", version, creationTime: iso(this.now()), expiration: iso(this.now() + KEEP_MS),
      nbAgentsActioned: ids.length, nbAgentsActionCreated: ids.length, nbAgentsAck: 0, nbAgentsDone: 0, nbAgentsFailed: 0, hasRolloutPeriod: false,
      created_by: "first admin key", latestErrors: [],
    });
    this.emit("action.created", actionId, {}, "first admin key");
    for (const id of ids) {
      const a = this.agents.get(id);
      const verdict = a && this.verdict(a)!;
      if (!a || !verdict?.available) {
        this.finish(actionId, id, verdict?.reason ?? `Agent ${id} not found`);
        continue;
      }
      const watched = this.running.find((r) => r.agentId === id);
      this.running = this.running.filter((r) => r !== watched);
      Object.assign(a, { upgrade_details: null, upgrade_started_at: iso(this.now()), upgraded_at: null, upgrade_status: "started", upgrade_rollback: true, status: "updating" });
      this.changed(a);
      if (watched) this.finish(watched.actionId, id, `an operator rolled it back to ${version}`);
      // A watched upgrade is undone by its watcher; otherwise the agent switches.
      this.running.push({ agentId: id, actionId, from: a.agent.version, target: version, step: watched ? 7 : 3, wait: 4, percent: 0, tries: 0 });
    }
    return actionId;
  }

  cancel(actionId: string): boolean {
    const action = this.actions.find((a) => a.actionId === actionId);
    if (!action || action.status !== "IN_PROGRESS") return false;
    action.status = action.outcome = "CANCELLED";
    action.cancellationTime = iso(this.now());
    for (const a of this.agents.values()) {
      const d = a.upgrade_details;
      if (d?.action_id !== actionId || !["UPG_REQUESTED", "UPG_SCHEDULED"].includes(d.state)) continue;
      this.running = this.running.filter((r) => r.agentId !== a.id);
      Object.assign(a, { upgrade_details: null, upgrade_started_at: null, upgrade_status: null, status: a.status === "offline" ? "offline" : "online" });
      this.changed(a);
    }
    this.emit("action.cancelled", actionId, {}, "first admin key");
    return true;
  }

  /** withdraw cancels an upgrade for those of the agents that have not started, and returns them. */
  withdraw(ids: string[], why: string): string[] {
    return ids.filter((id) => {
      const a = this.agents.get(id);
      const d = a?.upgrade_details;
      if (!a || !d || !["UPG_REQUESTED", "UPG_SCHEDULED", "UPG_DOWNLOADING"].includes(d.state)) return false;
      this.running = this.running.filter((r) => r.agentId !== id);
      this.finish(d.action_id, id, `withdrawn: ${why}`);
      Object.assign(a, { upgrade_details: null, upgrade_started_at: null, upgrade_status: null, status: a.status === "offline" ? "offline" : "online" });
      this.changed(a);
      return true;
    });
  }

  previewUnenroll(ids: string[]): UnenrollPreview {
    const items = ids.map((id) => {
      const a = this.agents.get(id);
      if (!a) return { agent_id: id, hostname: id, status: "", will: false, reason: `Agent ${id} not found` };
      return { agent_id: id, hostname: host(a), status: a.status, will: a.active, reason: a.active ? undefined : `agent ${id} is unenrolled already` };
    });
    return { will: items.filter((i) => i.will).length, wont: items.filter((i) => !i.will).length, items };
  }

  unenrollAll(ids: string[], revoke: boolean): string {
    const actionId = this.id("action");
    const { will, wont } = this.previewUnenroll(ids);
    this.actions.unshift({
      actionId, type: revoke ? "FORCE_UNENROLL" : "UNENROLL", status: wont > 0 ? "FAILED" : "COMPLETE", outcome: wont > 0 ? "FAILED" : "COMPLETE", creationTime: iso(this.now()), completionTime: iso(this.now()),
      nbAgentsActioned: ids.length, nbAgentsActionCreated: will, nbAgentsAck: will, nbAgentsDone: will, nbAgentsFailed: wont, hasRolloutPeriod: false,
      created_by: "first admin key", latestErrors: [],
    });
    this.emit("action.created", actionId, {}, "first admin key");
    for (const id of ids) this.unenroll(id);
    return actionId;
  }

  unenroll(id: string): void {
    const a = this.agents.get(id);
    if (!a) return;
    Object.assign(a, { active: false, status: "unenrolled", unenrolled_at: iso(this.now()) });
    this.emit("agent.unenrolled", id, { agent: copy(a) }, "first admin key");
  }

  createAdminKey(name: string, lifetime?: string): AdminKey | null {
    if (this.adminKeys.some((k) => k.active && k.name === name)) return null;
    const key: AdminKey = { id: this.id("admin"), active: true, name, created_at: iso(this.now()), created_by: "first admin key" };
    if (lifetime) key.expire_at = iso(this.now() + Number.parseInt(lifetime) * 36e5);
    this.adminKeys.unshift(key);
    this.emit("key.created", key.id, {}, "first admin key");
    return { ...key, api_key: Buffer.from(`${key.id}:mock-secret`).toString("base64") };
  }

  revokeAdminKey(id: string): void {
    for (const k of this.adminKeys) if (k.id === id) k.active = false;
    this.emit("key.revoked", id, {}, "first admin key");
  }

  createKey(name: string, policyId: string, lifetime?: string): EnrollmentKey {
    const key = this.key(name, policyId, this.now());
    if (lifetime) key.expire_at = iso(this.now() + Number.parseInt(lifetime) * 36e5);
    key.api_key = Buffer.from(`${key.api_key_id}:mock-secret-of-${key.id}`).toString("base64");
    this.keys.unshift(key);
    this.emit("key.created", key.id, {}, "first admin key");
    return key;
  }

  subscribe(listener: (e: FleetEvent) => void, after: number | null): () => void {
    if (after !== null) this.events.filter((e) => e.seq > after).forEach(listener);
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  emit(type: string, subject: string, data: Record<string, unknown>, actor = ""): void {
    const event: FleetEvent = { seq: ++this.seq, at: iso(this.now()), type, subject, actor, data };
    this.events = [...this.events.slice(-999), event];
    this.listeners.forEach((l) => l(event));
  }

  private advance(r: Running): void {
    const a = this.agents.get(r.agentId)!;
    if (r.wait-- > 0) return;
    const to = (state: UpgradeState, metadata: NonNullable<Agent["upgrade_details"]>["metadata"] = {}) => {
      a.upgrade_details = { target_version: r.target, action_id: r.actionId, state, metadata };
      this.changed(a);
    };
    const after = VERSIONS[r.target as keyof typeof VERSIONS];
    switch (r.step) {
      case 0:
        r.step++;
        return to("UPG_DOWNLOADING", { download_percent: 0 });
      case 1:
        r.percent = Math.min(100, r.percent + 9 + (hash(a.id + r.percent) % 14));
        to("UPG_DOWNLOADING", { download_percent: r.percent, download_rate: 9e6 + (hash(a.id) % 60) * 1e5 });
        if (host(a) === "db-02" && r.percent > 40) {
          return this.end(r, a, "UPG_FAILED", { failed_state: "UPG_DOWNLOADING", error_msg: "the archive's checksum does not match its manifest; push the package again" }, "failed");
        }
        if (host(a) === "cache-01" && r.percent > 40 && r.tries === 0) {
          Object.assign(r, { tries: 1, percent: 0, wait: 12 });
          return to("UPG_SCHEDULED", { scheduled_at: iso(this.now() + 6e4), retry_error_msg: "no route to host", retry_attempt: 1, retry_limit: 6 });
        }
        if (r.percent >= 100) r.step++;
        return;
      case 2:
        r.step++;
        return to("UPG_EXTRACTING");
      case 3:
        r.step++;
        return to("UPG_REPLACING");
      case 4:
        r.step++;
        r.wait = 1;
        return to("UPG_RESTARTING");
      case 5:
        r.step++;
        r.wait = 8;
        a.agent.version = r.target;
        to("UPG_WATCHING");
        return this.watch(a, r, "watching");
      default:
        if (after === "good" || after === undefined || r.step === 7) {
          Object.assign(a, { upgrade_details: null, upgrade_status: null, upgraded_at: iso(this.now()), upgrade_started_at: null, status: "online" });
          a.agent.version = r.target;
          a.upgrade = a.upgrade_rollback ? undefined : { rollbacks: [{ version: r.from, valid_until: iso(this.now() + KEEP_MS) }] };
          this.running = this.running.filter((x) => x !== r);
          if (a.watch) a.watch.stage = r.step === 7 ? "rolled_back" : "committed";
          this.changed(a);
          return this.finish(r.actionId, a.id);
        }
        a.agent.version = r.from;
        this.watch(a, r, "rolled_back");
        return this.end(r, a, "UPG_ROLLBACK", after === "crashes"
          ? { reason: "the process went away 3 times within 14 s", reason_code: "crash_loop" }
          : { reason: "the component collector said FAILED for 30 s: cannot open its port", reason_code: "component_failed" }, "rolled_back");
    }
  }

  private end(r: Running, a: Agent, state: UpgradeState, metadata: NonNullable<Agent["upgrade_details"]>["metadata"], status: "failed" | "rolled_back"): void {
    a.upgrade_details = { target_version: r.target, action_id: r.actionId, state, metadata };
    Object.assign(a, { upgrade_status: status, upgrade_started_at: null, status: "online" });
    this.running = this.running.filter((x) => x !== r);
    this.changed(a);
    this.finish(r.actionId, a.id, metadata?.reason ?? metadata?.error_msg);
  }

  private finish(actionId: string, agentId: string, error?: string): void {
    const action = this.actions.find((a) => a.actionId === actionId)!;
    if (error) {
      action.nbAgentsFailed++;
      const a = this.agents.get(agentId);
      action.latestErrors.unshift({ agentId, hostname: a && host(a), error, timestamp: iso(this.now()) });
    } else {
      action.nbAgentsAck++;
      action.nbAgentsDone++;
    }
    if (action.nbAgentsAck + action.nbAgentsFailed >= action.nbAgentsActioned) {
      action.status = action.outcome = action.nbAgentsAck === 0 ? "FAILED" : "COMPLETE";
      action.completionTime = iso(this.now());
    }
    this.emit("action.result", actionId, { agent_id: agentId, error });
  }

  private watch(a: Agent, r: Running, stage: Watch["stage"]): void {
    const at = iso(this.now());
    a.watch = {
      action_id: r.actionId, from: r.from, to: r.target, stage, at, received_at: at,
      agent: { alive: true, state: "healthy", version: a.agent.version, crashes: 0, last_checkin: at },
      waiting: stage === "watching" ? "for healthy samples until the grace period is over" : undefined,
    };
    this.emit("agent.watch", a.id, { agent: copy(a) });
  }

  /** Which version an agent can be rolled back to, by the server's rules as far as the mock has them. */
  private verdict(a: Agent): Agent["rollback"] {
    const watched = a.upgrade_details?.state === "UPG_WATCHING" ? this.running.find((r) => r.agentId === a.id) : undefined;
    if (watched) return { available: true, version: watched.from };
    if (a.upgrade_started_at) return { available: false, reason: `agent ${a.id} is already being upgraded: cancel that, or wait until it is watched` };
    const kept = a.upgrade?.rollbacks?.find((r) => Date.parse(r.valid_until) > this.now());
    if (!kept) return { available: false, reason: `upgrade rollback not available for agent: agent ${a.id} keeps no earlier version` };
    return { available: true, ...kept };
  }

  changed(a: Agent): void {
    a.rollback = this.verdict(a);
    a.desired_version = a.upgrade_status === "started" ? a.upgrade_details?.target_version ?? a.agent.version : a.agent.version;
    if (!a.upgrade_details && a.status === "online") a.last_healthy_version = a.agent.version;
    this.emit("agent.upgrade", a.id, { agent: copy(a) });
  }

  private whyNot(a: Agent, version: string, force: boolean): string | undefined {
    if (!a.active) return "It is unenrolled.";
    if (!this.packages.some((p) => p.version === version)) return `No package ${version} is published for linux/amd64.`;
    if ((a.local_metadata as { elastic: { agent: { upgradeable: boolean } } }).elastic.agent.upgradeable === false) {
      return "It cannot be upgraded from here: it runs in a container or is not installed as a service.";
    }
    if (force) return undefined;
    if (this.running.some((r) => r.agentId === a.id)) return `It is already being upgraded to ${a.upgrade_details?.target_version}.`;
    const d = compareVersions(version, a.agent.version);
    if (d === 0) return `It runs ${version} already.`;
    if (d < 0) return `It runs ${a.agent.version}; going down to ${version} needs force.`;
    return undefined;
  }

  private agent(i: number): Agent {
    const name = HOSTS[i] ?? `node-${String(i).padStart(5, "0")}`;
    const id = `5d1e${String(i).padStart(4, "0")}-7a90-4c1b-9f3e-${String(hash(name)).padStart(12, "0").slice(0, 12)}`;
    const offline = i === 9 || (i > 20 && i % 23 === 0);
    const bad = i === 4 || (i > 20 && i % 31 === 0);
    const edge = name.startsWith("edge");
    const a: Agent = {
      id, type: "PERMANENT", active: true, status: offline ? "offline" : bad ? "degraded" : "online",
      enrolled_at: iso(this.now() - 864e5 * (3 + (i % 5))), policy_id: edge ? "edge" : "default", policy_revision: 2,
      last_checkin: iso(this.now() - (offline ? 47 * 6e4 : (i % 20) * 1000)), last_checkin_status: bad ? "degraded" : "online",
      last_checkin_message: bad ? "collector: 2 of 3 outputs are reachable" : "Running",
      agent: { id, version: i === 3 ? "1.1.0" : "1.0.0" },
      local_metadata: {
        host: { hostname: name, architecture: i % 3 === 2 ? "arm64" : "amd64", ip: [`10.0.${i >> 8}.${i & 255}/24`] },
        os: { name: "Debian GNU/Linux", version: "12", family: "linux", kernel: "6.1.0-30" },
        elastic: { agent: { id, version: "1.0.0", snapshot: false, upgradeable: i !== 11, "build.original": "1.0.0 (build: 9be1f0)" } },
      },
      user_provided_metadata: {}, tags: edge ? ["edge", name.slice(5, 8)] : name.startsWith("db") ? ["prod", "stateful"] : ["prod"],
      packages: [],
      components: [
        { id: "collector", type: "process", status: bad ? "DEGRADED" : "HEALTHY", message: bad ? "2 of 3 outputs are reachable" : "Healthy", units: [
          { id: "logs", type: "input", status: "HEALTHY", message: "Healthy" },
          { id: "archive", type: "output", status: bad ? "DEGRADED" : "HEALTHY", message: bad ? "connection refused" : "Healthy" },
        ] },
        { id: "heartbeat", type: "process", status: "HEALTHY", message: "Healthy" },
        {
          id: "web-server", type: "component", status: "HEALTHY", message: "Running since 2 days", name: "web-server", runtime: "systemd", version: "2.4.0",
          desired_version: i === 4 ? "2.5.0" : "2.4.0", last_healthy_version: "2.4.0", rollbacks: ["2.3.0"], since: iso(this.now() - 2 * 864e5),
          ...(i === 4 ? { upgrade_status: "started", upgrade_details: { target_version: "2.5.0", action_id: "component-1", state: "UPG_WATCHING", metadata: { phase: "VERIFYING" } } } : {}),
          ...(i === 7 ? {
            upgrade_status: "rolled_back", restarts: 1,
            upgrade_details: { target_version: "2.6.0", action_id: "component-0", state: "UPG_FAILED", metadata: { failed_state: "UPG_WATCHING", error_msg: "version 2.6.0 is not healthy: check answers fails: 503 Service Unavailable" } },
          } : {}),
        },
        ...(edge ? [{ id: "cache", type: "component", status: "STARTING", message: "Not installed yet", name: "cache", runtime: "docker" }] : []),
      ],
      upgrade_started_at: null, upgraded_at: i === 3 ? iso(this.now() - 72e5) : null, upgrade_status: null, upgrade_details: null,
    };
    if (i === 3) a.upgrade = { rollbacks: [{ version: "1.0.0", valid_until: iso(this.now() + 5 * 864e5) }] };
    if (i === 9) silence(a, this.now());
    a.rollback = this.verdict(a);
    a.desired_version = a.agent.version;
    if (!offline && !bad) a.last_healthy_version = a.agent.version;
    return a;
  }

  private key(name: string, policyId: string, at: number): EnrollmentKey {
    const id = this.id("key");
    return { id, active: true, api_key_id: `api-${id}`, name: name ? `${name} (${id})` : id, policy_id: policyId, created_at: iso(at) };
  }

  private id(noun: string): string {
    return `${noun}-${String(++this.ids).padStart(4, "0")}-6f1c2a`;
  }
}

export function iso(ms: number): string {
  return new Date(ms).toISOString();
}

export function host(a: Agent): string {
  return (a.local_metadata as { host: { hostname: string } }).host.hostname;
}

function copy(a: Agent): Agent {
  return structuredClone(a);
}

export function hash(text: string): number {
  let h = 7;
  for (const c of text) h = (h * 31 + c.charCodeAt(0)) >>> 0;
  return h;
}

/** An agent that was rolled back and has been silent since, while its watcher reports. */
function silence(a: Agent, now: number): void {
  const at = iso(now - 45 * 6e4);
  const reason = { code: "crash_loop", text: "the process went away 3 times within 14 s" };
  const metadata = { reason: reason.text, reason_code: reason.code };
  a.upgrade_status = "rolled_back";
  a.upgrade_details = { target_version: "1.1.0", action_id: "action-0000-6f1c2a", state: "UPG_ROLLBACK", metadata };
  a.watch = {
    action_id: "action-0000-6f1c2a", from: "1.0.0", to: "1.1.0", stage: "rolled_back", at, received_at: at, reason,
    agent: { alive: false, crashes: 3 },
    diagnosis: { code: "rolled_back", text: `The host was rolled back to 1.0.0 (${reason.text}), and the agent has not checked in since` },
  };
}

function pkg(version: string, arch: string, at: number): Package {
  const h = hash(version + arch).toString(16).padStart(8, "0");
  return {
    file: `muster-agent-${version}-linux-${arch}.tar.gz`, version, snapshot: false, hash: h.repeat(5), os: "linux", arch,
    size: 11_400_000 + (hash(h) % 900_000), sha256: h.repeat(8), sha512: h.repeat(16), key_id: "a1b2c3d4e5f60718", pushed_at: iso(at), pushed_by: "first admin key",
  };
}

function policy(id: string, name: string, at: number): Policy {
  return {
    id, name, namespace: "default", revision: 2, status: "active", inactivity_timeout: 1209600, is_managed: false, is_protected: false,
    updated_at: iso(at), updated_by: "first admin key", package_policies: [], agents: 0,
  };
}
