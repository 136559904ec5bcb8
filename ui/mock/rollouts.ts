/**
 * A small engine of rollouts for the mock's fleet: batches, canaries, approval, a threshold that
 * pauses and withdraws offers. ../DESIGN.md lists how it differs from the server.
 */
import type { Agent, AuditEntry, Batch, ConfigPreviewItem, ExposureRule, Freeze, Incident, Plan, Preview, Rollout, Stop, Target, Wait } from "../app/api/types";
import { host, iso, type MockFleet } from "./fleet.ts";
import { MockGroups } from "./groups.ts";
import { move, recount, zero, type Entry } from "./rolloutStep.ts";
import { check, drift, preview, Refusal } from "./preview.ts";

const ME = "first admin key";

export class MockRollouts {
  entries = new Map<string, Entry>();
  previews = new Map<string, Preview>();
  freezes: Freeze[] = [];
  incidents: Incident[] = [];
  rule: ExposureRule;
  readonly groups: MockGroups;
  private ids = 0;

  constructor(readonly fleet: MockFleet, readonly now: () => number) {
    this.rule = { id: "fleet", enabled: false, percent: 10, healthy_hours: 24, updated_at: iso(now()), updated_by: "" };
    this.groups = new MockGroups(now(), fleet.agents.size);
    this.seed();
  }

  list(): Rollout[] {
    return [...this.entries.values()].map((e) => e.rollout).sort((a, b) => Date.parse(b.created_at) - Date.parse(a.created_at));
  }

  get(id: string): Entry {
    const e = this.entries.get(id);
    if (!e) throw new Refusal(404, `There is no rollout ${id}.`);
    return e;
  }

  create(plan: Plan, change: Partial<Rollout> = {}): Entry {
    check(plan);
    const rollout: Rollout = { id: `rollout-${String(++this.ids).padStart(4, "0")}-9d3e`, state: "draft", plan, generation: 1, counts: zero(), created_at: iso(this.now()), created_by: ME, ...change };
    const entry: Entry = { rollout, targets: [], audit: [] };
    this.entries.set(rollout.id, entry);
    this.say(entry, "rollout.create", "drafted it", "rollout.created");
    return entry;
  }

  dryRun(plan: Plan, id = ""): Preview {
    const p = preview(this.fleet, plan, id, this.now(), (a) => (a.rollout && a.rollout.id !== id ? `it is in rollout ${a.rollout.name}` : undefined));
    if (this.rule.enabled) p.exposure = this.exposure(plan.version ?? "");
    return p;
  }

  preview(id: string): Preview {
    const p = this.dryRun(this.get(id).rollout.plan, id);
    this.previews.set(p.hash, p);
    return p;
  }

  /** What a preview changes: one line of one file on each host. */
  configs(pinned: string, agents: string[]): ConfigPreviewItem[] {
    const p = this.previews.get(pinned);
    if (!p) throw new Refusal(404, `Preview ${pinned} is not kept.`);
    return p.targets.filter((t) => t.config && (agents.length === 0 || agents.includes(t.agent_id))).map((t) => ({
      agent_id: t.agent_id, hostname: t.hostname, rendered_sha256: t.config,
      diff: `--- /etc/web/web.conf\n+++ /etc/web/web.conf\n@@ -1,2 +1,2 @@\n # ${t.hostname}\n-workers 2\n+workers 4\n`,
    }));
  }

  start(id: string, pinned: string, accept: boolean, why?: string): Rollout {
    const e = this.get(id);
    const shown = this.previews.get(pinned);
    if (e.rollout.state !== "draft") throw new Refusal(409, `${e.rollout.plan.name} has been started already.`);
    if (!shown) throw new Refusal(409, "This preview is not stored any more; preview again.");
    const fresh = this.preview(id);
    if (fresh.hash !== shown.hash && !accept) {
      throw new Refusal(409, "The fleet has changed since the preview.", { drift: drift(shown, fresh), hash: fresh.hash, targets: fresh.targets.length });
    }
    this.begin(e, fresh, why);
    return e.rollout;
  }

  private begin(e: Entry, p: Preview, why?: string): void {
    const r = e.rollout;
    Object.assign(r, { state: "running", started_at: iso(this.now()), started_by: ME, pin: { hash: p.hash, targets: p.targets.length, at: p.at }, policies: [...new Set(p.targets.map((t) => t.policy))] });
    e.targets = p.targets.map((t, order): Target => ({ rollout_id: r.id, agent_id: t.agent_id, hostname: t.hostname, batch: t.batch, order, ring: 0, state: "pending", from: t.from, to: t.to, site: t.site, attempts: 0, rollback: t.rollback }));
    r.batches = p.batches.map((b): Batch => ({ index: b.index, kind: b.kind, ring: 0, counts: zero() }));
    for (const t of e.targets) this.hold(t.agent_id, e);
    recount(e);
    this.say(e, "rollout.start", `started it on ${e.targets.length} agents`, r.rollback_of ? "rollout.rollback_initiated" : "rollout.started", why);
  }

  command(id: string, what: string, body: Record<string, unknown>): Rollout {
    const e = this.get(id);
    const r = e.rollout;
    const why = typeof body.why === "string" ? body.why : undefined;
    const decision = { by: ME, at: iso(this.now()), why };
    const needWhy = () => { if (!why) throw new Refusal(400, "body.why is empty: give a reason to continue"); };
    if (what !== "rollback" && !["running", "paused"].includes(r.state)) throw new Refusal(409, `${r.plan.name} is ${r.state}.`);
    switch (what) {
      case "pause":
        if (body.now === true) this.stop(e, { kind: "operator", text: `${ME} paused it at once${why ? `: ${why}` : ""}`, by: ME });
        else r.pause_asked = decision;
        this.say(e, "rollout.pause", body.now ? "paused it at once" : "asked to pause it after the current batch", "rollout.paused", why);
        break;
      case "force":
        needWhy();
        r.forced = decision;
        this.goOn(e);
        this.say(e, "rollout.force", "forced it: failures no longer pause it", "rollout.resumed", why);
        break;
      case "resume":
        if (r.stop && ["threshold", "canary", "exposure", "deadline"].includes(r.stop.kind)) needWhy();
        this.goOn(e);
        this.say(e, "rollout.resume", "resumed it", "rollout.resumed", why);
        break;
      case "approve":
        r.approved = decision;
        this.say(e, "rollout.approve", "approved it to continue after the canaries", "rollout.progress", why);
        break;
      case "cancel":
        this.takeBack(e, "the rollout was cancelled");
        for (const t of e.targets) if (t.state === "pending" || t.state === "held") this.set(e, t, "cancelled", "operator");
        Object.assign(r, { state: "cancelling", stop: undefined, pause_asked: undefined });
        this.say(e, "rollout.cancel", "cancelled it; upgrades under way still end", "rollout.progress", why);
        break;
      case "retry":
      case "skip":
        for (const t of this.named(e, body, what)) this.set(e, t, what === "retry" ? "pending" : "skipped", what === "retry" ? undefined : "operator");
        for (const b of r.batches ?? []) if (what === "retry" && e.targets.some((t) => t.batch === b.index && t.state === "pending")) b.cleared_at = b.ended_at = undefined;
        this.say(e, `rollout.${what}`, what === "retry" ? "retried targets" : "skipped targets", "rollout.progress", why);
        break;
      case "rollback":
        return this.rollback(e, body.scope === "all" ? "all" : "failed", why);
    }
    recount(e);
    return r;
  }

  delete(id: string): void {
    if (this.get(id).rollout.state !== "draft") throw new Refusal(409, "Only drafts can be deleted.");
    this.entries.delete(id);
    this.fleet.emit("rollout.progress", id, {});
  }

  tick(): void {
    for (const e of this.entries.values()) if (["running", "paused", "cancelling"].includes(e.rollout.state)) move(this, e);
  }

  /** stop pauses, and withdraws in the same round the offers that no agent has begun. */
  stop(e: Entry, s: Pick<Stop, "kind" | "text" | "by">): void {
    const withdrawn = s.kind === "success" ? 0 : this.takeBack(e, s.text);
    Object.assign(e.rollout, { state: "paused", pause_asked: undefined, stop: { ...s, at: iso(this.now()), withdrawn, batch: Math.max(0, (e.rollout.batches ?? []).findIndex((b) => !b.cleared_at)) } });
    e.rollout.generation++;
    recount(e);
    if (s.by === "muster") this.say(e, "rollout.step", `stopped: ${s.text}`, "rollout.paused", undefined, "muster");
  }

  end(e: Entry, state: Rollout["state"]): void {
    Object.assign(e.rollout, { state, ended_at: iso(this.now()), waiting: [] });
    for (const t of e.targets) {
      const a = this.fleet.agents.get(t.agent_id);
      if (a?.rollout?.id === e.rollout.id) a.rollout = undefined;
    }
    const of = e.rollout.rollback_of ? this.entries.get(e.rollout.rollback_of) : undefined;
    if (of && !e.rollout.id.endsWith("-failed")) this.end(of, "rolled_back");
    this.say(e, "rollout.step", `is ${state}`, state === "completed" ? "rollout.completed" : state === "cancelled" ? "rollout.cancelled" : state === "rolled_back" ? "rollout.rollback_completed" : "rollout.failed", undefined, "muster");
  }

  set(e: Entry, t: Target, state: Target["state"], code?: string, error?: string): void {
    const over = ["succeeded", "failed", "rolled_back", "withdrawn", "skipped", "expired", "cancelled"].includes(state);
    Object.assign(t, { state, code, error, ended_at: over ? iso(this.now()) : undefined, phase: over ? undefined : t.phase });
    this.fleet.emit(over ? "agent.upgrade_completed" : "agent.upgrade_phase_changed", t.agent_id, { rollout_id: e.rollout.id, state, error });
  }

  wait(e: Entry, code: string, text: string, until?: number): Wait {
    const same = e.rollout.waiting?.find((w) => w.code === code);
    return { code, text, since: same?.since ?? iso(this.now()), until: until ? iso(until) : same?.until };
  }

  exposure(version: string): NonNullable<Rollout["exposure"]> {
    const all = this.fleet.list(false);
    const exposed = all.filter((a) => a.agent.version === version || a.upgrade_details?.target_version === version).length;
    return { version, fleet: all.length, exposed, limit: Math.max(1, Math.floor((all.length * this.rule.percent) / 100)), healthy_hours: exposed * 0.4, needed_hours: this.rule.healthy_hours };
  }

  incident(i: Pick<Incident, "category" | "severity" | "title" | "text"> & Partial<Incident>): void {
    const id = `${i.category}:${i.rollout_id ?? ""}:${i.agent_id ?? ""}`;
    this.incidents = [{ id, state: "open", opened_at: iso(this.now()), count: 1, ...i }, ...this.incidents.filter((x) => x.id !== id)];
    this.fleet.emit("incident.changed", id, {});
  }

  private named(e: Entry, body: Record<string, unknown>, what: string): Target[] {
    const ids = Array.isArray(body.agents) ? body.agents.map(String) : [];
    if (ids.length === 0 && what === "skip") throw new Refusal(400, "body.agents is empty: name at least one agent to skip");
    return e.targets.filter((t) => (ids.length > 0 ? ids.includes(t.agent_id) : t.state === "failed" || t.state === "rolled_back"));
  }

  private goOn(e: Entry): void {
    const bad = e.rollout.counts.failed + e.rollout.counts.rolled_back;
    Object.assign(e.rollout, { state: "running", stop: undefined, pause_asked: undefined, forgiven: bad || undefined });
  }

  private takeBack(e: Entry, why: string): number {
    const back = this.fleet.withdraw(e.targets.filter((t) => t.state === "offered").map((t) => t.agent_id), why);
    for (const t of e.targets) if (back.includes(t.agent_id)) this.set(e, t, "withdrawn", e.rollout.state === "running" ? "threshold" : "operator");
    return back.length;
  }

  private rollback(e: Entry, scope: "failed" | "all", why?: string): Rollout {
    const id = `${e.rollout.id}-rollback${scope === "failed" ? "-failed" : ""}`;
    if (this.entries.has(id)) return this.get(id).rollout;
    const states = scope === "all" ? ["failed", "rolled_back", "succeeded"] : ["failed", "rolled_back"];
    const targets = e.targets.filter((t) => states.includes(t.state) && this.fleet.agents.get(t.agent_id)?.agent.version !== t.from);
    if (e.rollout.state === "running") this.stop(e, { kind: "rollback", text: "its rollback is under way", by: ME });
    e.rollout.rolled_back_by = id;
    const back = this.create({ ...e.rollout.plan, name: `Rollback of ${e.rollout.plan.name}`, version: undefined, strategy: { kind: "all_at_once" }, pace: {} }, { id, rollback_of: e.rollout.id });
    const p: Preview = { ...this.dryRun({ ...e.rollout.plan, select: { agents: [] } }, id), targets: targets.map((t) => ({ ...t, policy: "default", from: t.to, to: t.from, batch: 0, online: true, bytes: 0, rollback: true })), skipped: [] };
    p.batches = [{ index: 0, kind: "regular", ring: 0, size: p.targets.length, offline: 0, start_at: p.at, end_at: p.at, share: 0 }];
    this.begin(back, p, why);
    return back.rollout;
  }

  private hold(agentId: string, e: Entry): void {
    const a: Agent | undefined = this.fleet.agents.get(agentId);
    if (a) Object.assign(a, { desired_version: e.targets.find((t) => t.agent_id === agentId)?.to });
    if (a) a.rollout = { id: e.rollout.id, name: e.rollout.plan.name };
  }

  say(e: Entry, verb: string, text: string, event: string, why?: string, actor = ME): void {
    const entry: AuditEntry = { id: `${e.rollout.id}-${e.audit.length}`, at: iso(this.now()), actor, verb, subject: e.rollout.id, why, text: `${actor === "muster" ? "It" : actor} ${text}` };
    e.audit.unshift(entry);
    this.fleet.emit(event, e.rollout.id, { state: e.rollout.state }, actor);
  }

  /** An upgrade of last week, and a host that needs an operator since. */
  private seed(): void {
    const silent = [...this.fleet.agents.values()].find((a) => a.watch?.stage === "rolled_back");
    if (!silent) return;
    const e = this.create({ name: "Edge sites to 1.1.0", version: "1.1.0", strategy: { kind: "rolling", batch_size: 1 }, select: { policies: ["edge"] } });
    const targets = [...this.fleet.agents.values()].filter((a) => a.policy_id === "edge");
    e.targets = targets.map((a, order) => ({ rollout_id: e.rollout.id, agent_id: a.id, hostname: host(a), batch: order, order, ring: 0, attempts: 1, from: "1.0.0", to: "1.1.0", state: a === silent ? "rolled_back" : "withdrawn", code: a === silent ? "crash_loop" : "threshold", error: a === silent ? a.watch?.reason?.text : undefined, ended_at: iso(this.now() - 45 * 6e4) }));
    const at = iso(this.now() - 50 * 6e4);
    Object.assign(e.rollout, { state: "cancelled", created_at: at, started_at: at, started_by: ME, ended_at: iso(this.now() - 40 * 6e4), batches: targets.map((_, index) => ({ index, kind: "regular", ring: 0, started_at: index === 0 ? at : undefined, counts: zero() })) });
    recount(e);
    this.incident({ category: "upgrade_failed", severity: "critical", title: `${host(silent)} has been silent since it was rolled back`, text: silent.watch?.diagnosis?.text ?? "", agent_id: silent.id, hostname: host(silent), rollout_id: e.rollout.id, recovery_plan: "Log in on the serial console and look at /var/log/muster; reinstall the agent if it does not start." });
  }
}
