/** One round of the mock's rollouts: it updates the targets and offers the next upgrades. */
import type { AuditEntry, Counts, Rollout, Target } from "../app/api/types";
import { iso } from "./fleet.ts";
import type { MockRollouts } from "./rollouts.ts";
import { millis } from "./preview.ts";

export interface Entry {
  rollout: Rollout;
  targets: Target[];
  audit: AuditEntry[];
  /** What was sent last, so that only changes are events. */
  sent?: string;
}

/** A minute of a plan takes this many milliseconds in the mock. */
const MINUTE_MS = 200;

const short = (text: string | undefined, otherwise: number) => (millis(text, otherwise) / 6e4) * MINUTE_MS;

/** The agents of a batch start this many ticks apart: when a batch pauses, some have not started. */
const STAGGER_TICKS = 7;

export function move(m: MockRollouts, e: Entry): void {
  for (const t of e.targets) assess(m, e, t);
  recount(e);
  const r = e.rollout;
  if (r.state === "cancelling" && inFlight(e) === 0) return m.end(e, "cancelled");
  if (r.state === "running") decide(m, e);
  if (r.plan.strategy.kind === "lockstep") together(m, r);
  if (r.state === "paused") r.waiting = [];
  recount(e);
  const now = JSON.stringify([r.counts, r.waiting, r.state]);
  if (now !== e.sent) m.fleet.emit("rollout.progress", r.id, { counts: r.counts });
  e.sent = now;
}

/** together shows a phase by what the agents do; they do not wait for each other here. */
function together(m: MockRollouts, r: Rollout): void {
  const phases = ["verify", "drain", "switch", "start", "settle"] as const;
  const c = r.counts;
  const at = c.pending === c.total ? 0 : c.offered > 0 ? 1 : c.upgrading > 0 ? 2 : c.verifying > 0 ? 3 : 4;
  const phase = phases[Math.max(at, phases.indexOf((r.lockstep?.phase ?? "verify") as "verify"))]!;
  if (r.lockstep?.phase === phase) return;
  r.lockstep = { ...r.lockstep, phase, since: iso(m.now()), targets: c.total, committed_at: r.lockstep?.committed_at ?? (at > 1 ? iso(m.now()) : undefined) };
}

const inFlight = (e: Entry) => e.rollout.counts.offered + e.rollout.counts.upgrading + e.rollout.counts.verifying;

function assess(m: MockRollouts, e: Entry, t: Target): void {
  if (!["offered", "upgrading", "verifying"].includes(t.state)) return;
  const a = m.fleet.agents.get(t.agent_id)!;
  const d = a.upgrade_details;
  if (d && d.action_id === t.action_id) {
    t.phase = d.state;
    t.sign_at = iso(m.now());
    if (d.state === "UPG_FAILED") return m.set(e, t, "failed", "reported_failure", d.metadata?.error_msg);
    if (d.state === "UPG_ROLLBACK") return m.set(e, t, "rolled_back", d.metadata?.reason_code === "crash_loop" ? "crash_loop" : "rolled_back", d.metadata?.reason);
    const state = d.state === "UPG_WATCHING" ? "verifying" : ["UPG_EXTRACTING", "UPG_REPLACING", "UPG_RESTARTING"].includes(d.state) ? "upgrading" : "offered";
    if (state !== t.state) m.set(e, t, state);
    if (state === "verifying") t.reached_at ??= iso(m.now());
    return;
  }
  if (a.agent.version === t.to && a.status === "online") m.set(e, t, "succeeded", "healthy");
}

function decide(m: MockRollouts, e: Entry): void {
  const r = e.rollout;
  const bad = r.counts.failed + r.counts.rolled_back - (r.forgiven ?? 0);
  const limit = Math.max(1, r.plan.failure?.count ?? 3);
  const batch = r.batches?.find((b) => !b.cleared_at);
  const canaryBad = batch?.kind === "canary" && batch.counts.failed + batch.counts.rolled_back - (r.forgiven ?? 0) > 0 && !r.plan.failure?.count;
  if (!r.forced && !r.plan.strategy.force_continue && (bad >= limit || canaryBad)) {
    return m.stop(e, { kind: batch?.kind === "canary" ? "canary" : "threshold", text: `${bad} of ${r.counts.succeeded + r.counts.failed + r.counts.rolled_back} failed, the plan pauses at ${limit}`, by: "muster" });
  }
  if (!batch) {
    const left = r.counts.held;
    r.waiting = left > 0 ? [m.wait(e, "away", `${left} agents are away; their offers wait for them`, m.now() + short(r.plan.pace?.offer_for, 168 * 36e5))] : [];
    if (left === 0) m.end(e, r.counts.failed + r.counts.rolled_back > 0 ? "failed" : "completed");
    return;
  }
  const own = e.targets.filter((t) => t.batch === batch.index);
  if (!batch.ended_at) {
    r.waiting = [m.wait(e, "later_batch", `${inFlight(e)} of batch ${batch.index + 1} are being upgraded`)];
    offer(m, e, own);
    batch.started_at ??= iso(m.now());
    recount(e);
    if (own.every((t) => !["pending", "offered", "upgrading", "verifying"].includes(t.state))) batch.ended_at = iso(m.now());
    return;
  }
  clear(m, e, batch);
}

/** clear waits for what follows a batch: observation, approval, soak. */
function clear(m: MockRollouts, e: Entry, batch: NonNullable<Rollout["batches"]>[number]): void {
  const r = e.rollout;
  const ended = Date.parse(batch.ended_at!);
  const last = batch.index === r.batches!.length - 1;
  const observed = ended + 2 * short(r.plan.health?.wait, 6e5);
  const soaked = ended + short(r.plan.pace?.soak, 0);
  const waits = [];
  if (!last && batch.kind === "canary" && m.now() < observed) waits.push(m.wait(e, "observation", "the canaries are watched for twice the health wait", observed));
  const approval = r.plan.strategy.canary?.approval || r.plan.migration?.type === "breaking";
  if (!last && batch.kind === "canary" && approval && !r.approved) waits.push(m.wait(e, "approval", "somebody must approve what follows the canaries", m.now() + 7 * 864e5));
  if (!last && m.now() < soaked) waits.push(m.wait(e, "soak", `batch ${batch.index + 1} is left to show its health`, soaked));
  r.waiting = waits;
  if (waits.length > 0) return;
  batch.cleared_at = iso(m.now());
  if (r.pause_asked) m.stop(e, { kind: "operator", text: `paused after batch ${batch.index + 1}${r.pause_asked.why ? `: ${r.pause_asked.why}` : ""}`, by: r.pause_asked.by });
  else if (!last && r.plan.pace?.pause_on_success) m.stop(e, { kind: "success", text: `batch ${batch.index + 1} succeeded, and the plan pauses after each batch`, by: "muster" });
}

function offer(m: MockRollouts, e: Entry, own: Target[]): void {
  const free = Math.max(0, (e.rollout.plan.limits?.max_parallel || 500) - inFlight(e));
  const ready: Target[] = [];
  for (const t of own.filter((x) => x.state === "pending").slice(0, free)) {
    const a = m.fleet.agents.get(t.agent_id)!;
    if (a.status === "offline") {
      t.expires_at = iso(m.now() + 7 * 864e5);
      m.set(e, t, "held", "away");
    } else ready.push(t);
  }
  if (ready.length === 0) return;
  const ids = ready.map((t) => t.agent_id);
  for (const t of ready) {
    Object.assign(t, { attempts: t.attempts + 1, offered_at: iso(m.now()), reached_at: undefined });
    m.set(e, t, "offered");
    m.fleet.emit("agent.upgrade_started", t.agent_id, { rollout_id: e.rollout.id, state: "offered" });
  }
  if (e.rollout.rollback_of) {
    for (const id of m.fleet.rollback(ids)) for (const t of ready) t.action_id = id;
    return;
  }
  const action = m.fleet.upgrade(ids, ready[0]!.to, e.rollout.plan.force ?? false, undefined, undefined, STAGGER_TICKS);
  for (const t of ready) t.action_id = action;
}

export function zero(): Counts {
  return { total: 0, pending: 0, held: 0, offered: 0, upgrading: 0, verifying: 0, succeeded: 0, failed: 0, rolled_back: 0, withdrawn: 0, skipped: 0, expired: 0, cancelled: 0 };
}

export function recount(e: Entry): void {
  const count = (of: Target[]) => of.reduce((c, t) => { c.total++; c[t.state]++; return c; }, zero());
  e.rollout.counts = count(e.targets);
  for (const b of e.rollout.batches ?? []) b.counts = count(e.targets.filter((t) => t.batch === b.index));
}
