/** What a plan would do to the fleet of the mock. */
import type { Agent, Drift, Plan, Preview, PreviewBatch, PreviewTarget, SkippedAgent } from "../app/api/types";
import { hash, host, iso, type MockFleet } from "./fleet.ts";
import { QueryError, read } from "./query.ts";

/** How long the upgrades of the mock take by its estimate. */
const TOOK_MS = 2 * 6e4;

export class Refusal extends Error {
  constructor(readonly status: number, message: string, readonly more: Record<string, unknown> = {}) {
    super(message);
  }
}

export function labelOf(a: Agent, label: string): string {
  if (label.startsWith("tag:")) return a.tags.includes(label.slice(4)) ? "true" : "";
  const meta = a.local_metadata as { host: { architecture: string }; os: { family: string } };
  return { os: meta.os.family, arch: meta.host.architecture, version: a.agent.version, policy: a.policy_id, site: host(a).split("-")[0]! }[label] ?? "";
}

/** check refuses the most frequent errors, with the server's messages. */
export function check(plan: Plan | undefined): asserts plan is Plan {
  if (!plan || typeof plan !== "object") throw new Refusal(400, "body.plan is missing");
  if (!plan.name) throw new Refusal(400, "body.plan.name is empty: name the rollout");
  const known = ["name", "description", "component", "profile", "upgrade_id", "manifest_hash", "version", "source_version", "artifacts", "source_uri", "force", "migration", "select", "late_joiners", "stage", "strategy", "limits", "failure", "health", "pace"];
  for (const key of Object.keys(plan)) if (!known.includes(key)) throw new Refusal(400, `body.plan.${key} is not a known key: remove it, or check its spelling`);
  const kind = plan.strategy?.kind;
  if (!["rolling", "canary", "all_at_once", "rings", "lockstep"].includes(kind)) throw new Refusal(400, `body.plan.strategy.kind is "${kind ?? ""}": want rolling, canary, all_at_once, rings or lockstep`);
  try {
    read(plan.select?.kuery ?? "");
  } catch (error) {
    if (error instanceof QueryError) throw new Refusal(400, `[request body.plan.select.kuery]: ${error.message}`);
    throw error;
  }
  if (plan.migration?.type === "breaking" && !plan.migration.recovery_plan) throw new Refusal(400, "body.plan.migration.recovery_plan is empty: a breaking migration needs one");
}

export function preview(fleet: MockFleet, plan: Plan, rolloutId: string, now: number, busy: (a: Agent) => string | undefined): Preview {
  check(plan);
  const matching = fleet.list(false).filter((a) => matches(plan, a));
  const skipped: SkippedAgent[] = [];
  const taken: Agent[] = [];
  for (const a of matching) {
    const locked = busy(a);
    const [item] = fleet.preview([a.id], plan.version!, plan.force ?? false).items;
    const code = locked ? "locked" : a.agent.version === plan.version ? "runs_version" : "refused";
    if (locked || !item?.will) skipped.push({ agent_id: a.id, hostname: host(a), version: a.agent.version, code, text: locked ?? item?.reason ?? "refused" });
    else taken.push(a);
  }
  taken.sort((a, b) => hash(plan.version + a.id) - hash(plan.version + b.id));
  const canaries = plan.strategy.kind === "canary" ? Math.min(taken.length, plan.strategy.canary?.size || Math.ceil((taken.length * (plan.strategy.canary?.percent ?? 0)) / 100) || 10) : 0;
  const size = plan.strategy.kind === "all_at_once" || plan.strategy.kind === "lockstep" ? taken.length : plan.strategy.batch_size || Math.max(1, Math.ceil((taken.length * (plan.strategy.batch_percent || 10)) / 100));
  const targets = taken.map((a, i): PreviewTarget => ({
    agent_id: a.id, hostname: host(a), policy: a.policy_id, from: a.agent.version, to: plan.version!, ring: 0, site: labelOf(a, "site"), online: a.status !== "offline", config: plan.component ? `${hash(plan.version + a.id)}` : undefined,
    batch: i < canaries ? 0 : Math.floor((i - canaries) / size) + (canaries > 0 ? 1 : 0), bytes: fleet.packages.find((p) => p.version === plan.version)?.size ?? 0,
  }));
  const batches = timed(targets, canaries, plan, now, fleet.list(false).length);
  const last = batches[batches.length - 1];
  const total = (last ? Date.parse(last.end_at) : now) - now;
  return {
    rollout_id: rolloutId, at: iso(now), targets, skipped, batches, coverage: canaries > 0 ? coverage(plan, taken, canaries) : undefined, sites: sites(targets),
    offline: targets.filter((t) => !t.online).length, at_least: goDuration(total * 0.8), estimate: goDuration(total), warnings: warnings(plan, targets),
    hash: `sha256:${[0, 1, 2, 3, 4, 5, 6, 7].map((n) => hash(`${n}${JSON.stringify([targets.map((t) => [t.agent_id, t.from, t.to, t.batch]), skipped.map((s) => [s.agent_id, s.code])])}`).toString(16).padStart(8, "0")).join("")}`,
  };
}

export function drift(old: Preview, fresh: Preview): Drift {
  const before = new Map(old.targets.map((t) => [t.agent_id, t]));
  const after = new Map(fresh.targets.map((t) => [t.agent_id, t]));
  const item = (t: PreviewTarget, text: string) => ({ agent_id: t.agent_id, hostname: t.hostname, text });
  return {
    added: fresh.targets.filter((t) => !before.has(t.agent_id)).map((t) => item(t, `runs ${t.from} and matches now`)),
    removed: old.targets.filter((t) => !after.has(t.agent_id)).map((t) => item(t, fresh.skipped.find((s) => s.agent_id === t.agent_id)?.text ?? "matches no more")),
    changed: fresh.targets.filter((t) => before.has(t.agent_id) && before.get(t.agent_id)!.batch !== t.batch).map((t) => item(t, `is in batch ${t.batch + 1} now`)),
  };
}

function matches(plan: Plan, a: Agent): boolean {
  const s = plan.select ?? {};
  if (s.kuery && !read(s.kuery)(a)) return false;
  if (s.agents && !s.agents.includes(a.id)) return false;
  if (s.policies && !s.policies.includes(a.policy_id)) return false;
  if (Object.entries(s.labels ?? {}).some(([label, values]) => !values.includes(labelOf(a, label)))) return false;
  if (Object.entries(s.exclude ?? {}).some(([label, values]) => values.includes(labelOf(a, label)))) return false;
  return s.all === true || !!(s.kuery || s.agents || s.policies || s.labels);
}

function timed(targets: PreviewTarget[], canaries: number, plan: Plan, now: number, fleetSize: number): PreviewBatch[] {
  const out: PreviewBatch[] = [];
  let at = now;
  let done = 0;
  for (let index = 0; ; index++) {
    const of = targets.filter((t) => t.batch === index);
    if (of.length === 0) return out;
    const canary = index === 0 && canaries > 0;
    const wait = millis(plan.health?.wait, 6e5);
    const end = at + TOOK_MS + wait;
    done += of.length;
    out.push({ index, kind: canary ? "canary" : "regular", ring: 0, size: of.length, offline: of.filter((t) => !t.online).length, start_at: iso(at), end_at: iso(end), share: done / Math.max(1, fleetSize) });
    at = end + (canary ? 2 * wait : 0) + millis(plan.pace?.soak, 0);
  }
}

function coverage(plan: Plan, taken: Agent[], canaries: number): Preview["coverage"] {
  const over = plan.strategy.canary?.over ?? ["os", "arch", "version"];
  const cells = new Map<string, number>();
  const key = (a: Agent) => over.map((l) => labelOf(a, l)).join("\n");
  for (const a of taken) cells.set(key(a), (cells.get(key(a)) ?? 0) + 1);
  const covered = new Set(taken.slice(0, canaries).map(key));
  const uncovered = [...cells].filter(([k]) => !covered.has(k)).sort((a, b) => b[1] - a[1]);
  return {
    over, cells: cells.size, covered: covered.size, agents: taken.filter((a) => covered.has(key(a))).length / Math.max(1, taken.length),
    uncovered: uncovered.slice(0, 20).map(([k, agents]) => ({ values: k.split("\n"), agents })),
  };
}

function sites(targets: PreviewTarget[]): Preview["sites"] {
  const out = new Map<string, { site: string; agents: number; bytes: number }>();
  for (const t of targets) {
    const s = out.get(t.site ?? "") ?? { site: t.site ?? "", agents: 0, bytes: 0 };
    out.set(s.site, { ...s, agents: s.agents + 1, bytes: s.bytes + t.bytes });
  }
  return [...out.values()];
}

function warnings(plan: Plan, targets: PreviewTarget[]): string[] {
  const away = targets.filter((t) => !t.online).length;
  return [
    ...(away > 0 ? [`${away} of ${targets.length} targets are away: their offers wait for them`] : []),
    ...(plan.strategy.canary?.approval || plan.migration?.type === "breaking" ? ["somebody must approve the rest behind the canaries"] : []),
  ];
}

/** millis parses a duration such as "10m". */
export function millis(text: string | undefined, otherwise: number): number {
  if (!text) return otherwise;
  return [...text.matchAll(/(\d+)(h|m|s)/g)].reduce((sum, [, n, u]) => sum + Number(n) * { h: 36e5, m: 6e4, s: 1e3 }[u as "h" | "m" | "s"], 0);
}

export function goDuration(ms: number): string {
  const s = Math.round(ms / 1000);
  return `${Math.floor(s / 3600)}h${Math.floor(s / 60) % 60}m${s % 60}s`;
}
