/** Objects of kind Fleet for the mock: some examples, and those that are written. Nothing carries them out. */
import type { Agent, Fleet, FleetChange, FleetCondition, FleetDiff } from "../app/api/types";
import { iso } from "./fleet.ts";
import { goDuration, Refusal } from "./preview.ts";

const ME = "first admin key";
const HOUR = 3_600_000;
const TYPES = ["Ready", "Progressing", "Promoting", "Degraded", "Stalled"] as const;

/** The keys that the mock knows; it refuses all others, as the server does. */
const SPEC = ["selector", "agent", "components", "configuration", "strategy", "limits", "failure", "health", "pace", "forcePromote", "paused"];
const HASHED = SPEC.slice(0, 5);

/** Any text of 64 hex digits that depends on the input. */
function hex(text: string): string {
  let out = "";
  for (let n = 0; n < 8; n++) {
    let h = 2166136261 ^ n;
    for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 16777619);
    out += (h >>> 0).toString(16).padStart(8, "0");
  }
  return out;
}

const sorted = (v: unknown): unknown =>
  v && typeof v === "object" && !Array.isArray(v) ? Object.fromEntries(Object.entries(v).sort(([a], [b]) => a.localeCompare(b)).map(([k, x]) => [k, sorted(x)])) : v;
const same = (a: unknown, b: unknown): boolean => JSON.stringify(sorted(a)) === JSON.stringify(sorted(b));
const force = (f: Fleet): string => f.metadata.annotations?.["muster.dev/force-rollout"] ?? "";
const hashOf = (f: Fleet): string => hex(JSON.stringify([HASHED.map((k) => sorted((f.spec as Record<string, unknown>)[k])), force(f)]));

function paths(before: unknown, after: unknown, at: string): string[] {
  if (same(before, after)) return [];
  const both = [before, after];
  if (!both.every((v) => v && typeof v === "object" && !Array.isArray(v))) return [at];
  const [a, b] = both as Record<string, unknown>[];
  return [...new Set([...Object.keys(a!), ...Object.keys(b!)])].sort().flatMap((k) => paths(a![k], b![k], `${at}.${k}`));
}

const changed = (a: Fleet, b: Fleet): string[] => [
  ...paths(a.metadata.labels ?? {}, b.metadata.labels ?? {}, "metadata.labels"), ...paths(a.metadata.annotations ?? {}, b.metadata.annotations ?? {}, "metadata.annotations"), ...paths(a.spec, b.spec, "spec"),
];

export class MockDeclared {
  all = new Map<string, Fleet>();
  history = new Map<string, FleetChange[]>();
  private version = 100;

  constructor(readonly agents: ReadonlyMap<string, Agent>, readonly now: () => number, readonly emit: (name: string) => void) {
    if (agents.size > 0) this.seed();
  }

  get(name: string): Fleet {
    const f = this.all.get(name);
    if (!f) throw new Refusal(404, `There is no object of kind Fleet with the name ${name}.`);
    return f;
  }

  list(labels: string): Fleet[] {
    const want = labels.split(",").filter(Boolean).map((p) => p.split("="));
    return [...this.all.values()].filter((f) => want.every(([k, v]) => f.metadata.labels?.[k!] === v)).sort((a, b) => a.metadata.name.localeCompare(b.metadata.name));
  }

  diff(f: Fleet): FleetDiff {
    check(f);
    const before = this.all.get(f.metadata.name);
    const [hashBefore, hashAfter] = [before && hashOf(before), hashOf(f)];
    const starts = hashBefore !== hashAfter;
    const promoting = before?.status?.conditions?.some((c) => c.type === "Promoting" && c.status === "True");
    const parts = [...(f.spec.agent ? [{ name: "agent", ...f.spec.agent }] : []), ...(f.spec.components ?? [])];
    const agents = this.agents.size;
    return {
      before, after: f, hashBefore, hashAfter, changed: before ? changed(before, f) : ["spec"], startsRollout: starts,
      reason: starts ? (before ? "fields that start a rollout have changed" : "the object is new") : "no field that starts a rollout has changed",
      waitsFor: starts && promoting ? `rollout ${before!.status!.rollout!.id} is promoting` : undefined,
      previews: starts ? parts.map((p) => ({ part: p.name, version: p.version, targets: Math.max(1, agents - 2), batches: 3, skipped: 2, seconds: 5400, durationText: goDuration(1.5 * HOUR) })) : [],
    };
  }

  apply(f: Fleet, why: string | undefined, create: boolean): { status: number; fleet: Fleet } {
    check(f);
    const { name, uid, resourceVersion, labels, annotations } = f.metadata;
    const old = this.all.get(name);
    if (old && create) throw new Refusal(409, `There is an object of kind Fleet with the name ${name} already.`);
    if ((uid && uid !== old?.metadata.uid) || (resourceVersion && resourceVersion !== old?.metadata.resourceVersion)) {
      throw new Refusal(409, `The object ${name} was changed: it has the resourceVersion ${old?.metadata.resourceVersion}, and not ${resourceVersion}.`);
    }
    const differs = old ? changed(old, f) : ["spec"];
    if (old && differs.length === 0) return { status: 200, fleet: old };
    const spec = !old || !same(old.spec, f.spec) || force(old) !== force(f);
    const fleet: Fleet = {
      ...f, status: old?.status,
      metadata: {
        name, labels, annotations, uid: old?.metadata.uid ?? hex(name + this.now()).slice(0, 32), resourceVersion: String(++this.version),
        generation: (old?.metadata.generation ?? 0) + (spec ? 1 : 0), creationTimestamp: old?.metadata.creationTimestamp ?? iso(this.now()),
      },
    };
    this.all.set(name, fleet);
    this.note(fleet, "apply", old ? "changed it" : "created it", differs, why);
    this.settle(fleet, !old || hashOf(old) !== hashOf(fleet));
    return { status: old ? 200 : 201, fleet };
  }

  delete(name: string, why: string | undefined): Fleet {
    const f = this.get(name);
    this.all.delete(name);
    this.note(f, "delete", "deleted it", [], why);
    return f;
  }

  resume(name: string, why: string | undefined): Fleet {
    const f = this.get(name);
    if (!f.status?.suspended) throw new Refusal(409, `${name} is not suspended.`);
    f.status = { ...f.status, suspended: undefined };
    this.note(f, "resume", "resumed it", [], why);
    this.settle(f, false);
    return f;
  }

  /** own refuses an order for agents that an object names, or suspends the object. */
  own(agents: readonly string[], takeOver: unknown, why: string | undefined): void {
    for (const f of this.all.values()) {
      if (f.status?.suspended || !f.spec.agent || !agents.some((id) => f.spec.selector.agents?.includes(id))) continue;
      const { name } = f.metadata;
      if (takeOver !== name) {
        throw new Refusal(409, `1 agent belongs to the Fleet object ${name}: change its spec instead, or take the agents over, which suspends it.`, { code: "fleet_owned" });
      }
      f.status = { ...f.status, suspended: { by: ME, at: iso(this.now()), why } };
      this.note(f, "suspend", "took its agents over", [], why);
      this.settle(f, false);
    }
  }

  private note(f: Fleet, action: FleetChange["action"], text: string, differs: string[], why?: string, by = ME, at = this.now()): void {
    const { name, uid, generation } = f.metadata;
    const rollouts = f.status?.rollout && hashOf(f) === f.status.requestedRolloutHash ? [{ id: f.status.rollout.id, state: f.status.rollout.state }] : [];
    this.history.set(name, [{ at: iso(at), by, action, text: `${by} ${text}`, uid, generation, hash: action === "apply" ? hashOf(f) : undefined, changed: differs, why, rollouts }, ...(this.history.get(name) ?? [])]);
    this.emit(name);
  }

  /** settle writes the status that the server would. A rollout that starts does not go on. */
  private settle(f: Fleet, starts: boolean): void {
    const s = f.status ?? {};
    const [part] = [...(f.spec.agent ? [{ name: undefined, ...f.spec.agent }] : []), ...(f.spec.components ?? [])];
    f.status = {
      ...s, observedGeneration: f.metadata.generation, agents: s.agents ?? 2, versions: s.versions ?? { agent: { "1.0.0": 2 } }, requestedRolloutHash: starts || !s.requestedRolloutHash ? hashOf(f) : s.requestedRolloutHash,
      rollout: starts ? { id: `fleet-${f.metadata.name}-${f.metadata.generation}`, component: part?.name, version: part?.version, state: "running" } : s.rollout,
    };
    f.status.conditions = this.conditions(f);
  }

  private conditions(f: Fleet): FleetCondition[] {
    const s = f.status!;
    const active = s.rollout?.state === "running";
    const ready = s.lastCompletedRolloutHash === hashOf(f) && !active;
    const now = iso(this.now());
    const stalled = s.suspended ? "Suspended" : f.spec.paused ? "Paused" : "";
    const all: Record<(typeof TYPES)[number], [boolean, string, string]> = {
      Ready: [ready && stalled === "", ready ? "RolledOut" : "NotRolledOut", ready ? "all agents run what the spec says" : "the spec is not rolled out yet"],
      Progressing: [active, active ? "RolloutRunning" : "NothingUnderWay", active ? "its rollout is under way" : "no rollout is under way"],
      Promoting: [false, "NotPromoting", "a change of the spec is carried out at once"],
      Degraded: [false, "NoFailures", "no agent failed to reach a version"],
      Stalled: [stalled !== "", stalled || "NotStalled", stalled === "Suspended" ? `${s.suspended!.by} took its agents over` : stalled === "Paused" ? "spec.paused is true" : "nothing waits for a person"],
    };
    return TYPES.map((type) => ({ type, status: all[type][0] ? "True" : "False", reason: all[type][1], message: all[type][2], lastTransitionTime: now, observedGeneration: f.metadata.generation }));
  }

  private seed(): void {
    const strategy = { kind: "canary" as const, canary: { size: 1, approval: true }, batch_percent: 25 };
    const make = (name: string, spec: Fleet["spec"], hours: number, status: Fleet["status"], change: Partial<FleetCondition>[] = []) => {
      const f: Fleet = {
        apiVersion: "muster.dev/v1alpha2", kind: "Fleet", spec, status,
        metadata: { name, labels: { team: name }, uid: hex(name).slice(0, 32), resourceVersion: String(++this.version), generation: 3, creationTimestamp: iso(this.now() - hours * HOUR) },
      };
      const hash = hashOf(f);
      f.status = { ...status, observedGeneration: 3, sequence: 2, requestedRolloutHash: hash, lastCompletedRolloutHash: status?.rollout?.state === "completed" ? hash : hex(name) };
      f.status.conditions = this.conditions(f).map((c) => ({ ...c, ...change.find((x) => x.type === c.type), lastTransitionTime: iso(this.now() - HOUR / 3) }));
      this.all.set(name, f);
      this.note(f, "apply", "created it", ["spec"], undefined, "terraform", this.now() - hours * HOUR);
      this.note(f, "apply", "changed it", ["spec.agent.version"], "the spring release", "gitops", this.now() - HOUR);
    };
    make("edge", { selector: { labels: { site: ["edge"] } }, components: [{ name: "web", version: "2.4.0" }], strategy: { kind: "rolling" } }, 700, {
      agents: 2, versions: { web: { "2.4.0": 2 } }, rollout: { id: "fleet-edge-2", component: "web", version: "2.4.0", state: "completed" },
    });
    make("web", { selector: { policies: ["web"] }, agent: { version: "1.1.0" }, components: [{ name: "web", version: "2.5.0" }], strategy, failure: { count: 2 }, health: { wait: "10m0s" } }, 400, {
      agents: 6, versions: { agent: { "1.0.0": 5, "1.1.0": 1 }, web: { "2.4.0": 6 } },
      rollout: { id: "fleet-web-2", version: "1.1.0", state: "running", waiting: "the canaries are healthy, and an operator must approve the other batches" },
    }, [{ type: "Stalled", status: "True", reason: "WaitsForApproval", message: "rollout fleet-web-2 of the agents to 1.1.0 waits for approval" }]);
    make("db", { selector: { labels: { site: ["db"] } }, agent: { version: "1.1.0" }, strategy: { kind: "rolling" } }, 90, {
      agents: 3, versions: { agent: { "1.0.0": 1, "1.1.0": 2 } }, rollout: { id: "fleet-db-2", version: "1.1.0", state: "completed" },
      suspended: { by: "ann", at: iso(this.now() - HOUR / 2), why: "db-02 needs the old version until the disk is replaced" },
    });
    make("cache", { selector: { labels: { site: ["cache"] } }, agent: { version: "1.2.0" }, strategy: { kind: "rolling" } }, 26, {
      agents: 2, versions: { agent: { "1.0.0": 2 } }, rollout: { id: "fleet-cache-2", version: "1.2.0", state: "failed" },
    }, [
      { type: "Degraded", status: "True", reason: "AgentsFailed", message: "2 agents of rollout fleet-cache-2 of the agents to 1.2.0 failed" },
      { type: "Stalled", status: "True", reason: "RolloutFailed", message: "rollout fleet-cache-2 of the agents to 1.2.0 failed: change the spec, or its annotation muster.dev/force-rollout to try again" },
    ]);
  }
}

/** check refuses the most frequent errors, all at once, in the form of the server's messages. */
function check(f: Fleet): void {
  const wrong: string[] = [];
  if (!/^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/.test(f.metadata?.name ?? "")) wrong.push(`metadata.name is "${f.metadata?.name}", want lower-case letters, digits and dashes`);
  for (const key of Object.keys(f.spec ?? {})) if (!SPEC.includes(key)) wrong.push(`spec.${key} is not a known field`);
  const kinds = ["rolling", "canary", "rings", "all_at_once", "lockstep"];
  const kind = f.spec?.strategy?.kind;
  if (kind && !kinds.includes(kind)) wrong.push(`spec.strategy.kind is "${kind}", want ${kinds.join(", ")}`);
  if (!f.spec?.agent && !f.spec?.components?.length) wrong.push("spec.agent is missing, and so is spec.components: at least one of them says what to roll out");
  if (wrong.length > 0) throw new Refusal(400, wrong.join("\n"));
}

type Answer = [status: number, body: unknown];
interface Call {
  d: MockDeclared;
  url: URL;
  name: string;
  body: Record<string, unknown>;
}

const routes: [method: string, path: RegExp, handle: (c: Call) => Answer][] = [
  ["GET", /^\/api\/v1\/fleets$/, ({ d, url }) => {
    const found = d.list(url.searchParams.get("labelSelector") ?? "");
    const from = Number(url.searchParams.get("offset") ?? 0);
    return [200, { apiVersion: "muster.dev/v1alpha2", kind: "FleetList", metadata: { total: found.length }, items: found.slice(from, from + Number(url.searchParams.get("limit") ?? 5000)) }];
  }],
  ["POST", /^\/api\/v1\/fleets$/, ({ d, url, body }) => [201, d.apply(body as unknown as Fleet, url.searchParams.get("why") ?? undefined, true).fleet]],
  ["GET", /^\/api\/v1\/fleets\/([^/]+)$/, ({ d, name }) => [200, d.get(name)]],
  ["PUT", /^\/api\/v1\/fleets\/([^/]+)$/, ({ d, url, body }) => { const { status, fleet } = d.apply(body as unknown as Fleet, url.searchParams.get("why") ?? undefined, false); return [status, fleet]; }],
  ["DELETE", /^\/api\/v1\/fleets\/([^/]+)$/, ({ d, name, url }) => [200, d.delete(name, url.searchParams.get("why") ?? undefined)]],
  ["POST", /^\/api\/v1\/fleets\/([^/]+)\/diff$/, ({ d, body }) => [200, d.diff(body as unknown as Fleet)]],
  ["POST", /^\/api\/v1\/fleets\/([^/]+)\/resume$/, ({ d, name, body }) => [200, d.resume(name, body.why as string | undefined)]],
  ["GET", /^\/api\/v1\/fleets\/([^/]+)\/history$/, ({ d, name }) => { const items = d.history.get(name) ?? []; return [200, { items, total: items.length }]; }],
];

/** answerDeclared answers requests about fleets; undefined for others. */
export function answerDeclared(d: MockDeclared, method: string, url: URL, body: Record<string, unknown>): Answer | undefined {
  for (const [verb, path, handle] of routes) {
    const match = verb === method ? path.exec(url.pathname) : null;
    if (match) return refusing(() => handle({ d, url, name: decodeURIComponent(match[1] ?? ""), body }));
  }
  return undefined;
}

export function refusing(handle: () => Answer): Answer {
  try {
    return handle();
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return [error.status, { statusCode: error.status, error: error.status === 409 ? "Conflict" : error.status === 404 ? "Not Found" : "Bad Request", message: error.message, ...error.more }];
  }
}
