/** Groups of rollouts for the mock: two examples, and drafts. Commands change their states, and nothing executes them. */
import type { Counts, GroupMember, GroupMemberState, GroupPlan, GroupPreview, GroupState, GroupStatus, Plan, Preview } from "../app/api/types";
import { iso } from "./fleet.ts";
import { check, goDuration, millis, Refusal } from "./preview.ts";
import { zero } from "./rolloutStep.ts";

const counts = (change: Partial<Counts>): Counts => ({ ...zero(), ...change });

function example(id: string, name: string, at: number, states: [GroupMemberState, Partial<Counts>?][], change: Partial<GroupStatus>): GroupStatus {
  const names = ["db", "web", "edge"].slice(0, states.length);
  const members: GroupMember[] = names.map((n, i) => ({ name: n, state: states[i]![0], rollout_id: states[i]![0] === "pending" ? undefined : `${id}-${i + 1}` }));
  return {
    id, state: "running", generation: 2, created_at: iso(at), created_by: "first admin key", started_at: iso(at), started_by: "first admin key", members,
    plan: {
      name, failure_policy: "manual", desired_versions: Object.fromEntries(names.map((n) => [n, "1.1.0"])),
      members: names.map((n) => ({ name: n, soak: "1h0m0s", plan: { name: `${name}: ${n}`, strategy: { kind: "rolling" } } })),
    },
    progress: names.map((n, i) => ({ name: n, state: states[i]![0], version: "1.1.0", counts: states[i]![1] && counts(states[i]![1]) })),
    ...change,
  };
}

export class MockGroups {
  all: GroupStatus[];
  private ids = 0;

  constructor(now: number, agents: number) {
    const hour = 3_600_000;
    this.all = agents === 0 ? [] : [
      example("group-0002", "Autumn release", now - hour, [["completed", { total: 4, succeeded: 4 }], ["running", { total: 6, succeeded: 2, failed: 3, pending: 1 }], ["pending"]], {
        state: "paused", stop: { kind: "failure", member: "web", text: "3 of 5 failed, the plan stops at 3", by: "muster", at: iso(now - hour / 4) },
      }),
      example("group-0001", "Summer release", now - 48 * hour, [["completed", { total: 4, succeeded: 4 }], ["completed", { total: 6, succeeded: 6 }]], {
        state: "completed", ended_at: iso(now - 44 * hour),
      }),
    ];
  }

  get(id: string): GroupStatus {
    const g = this.all.find((x) => x.id === id);
    if (!g) throw new Refusal(404, `There is no group ${id}.`);
    return g;
  }

  create(plan: GroupPlan | undefined, now: number, by: string): GroupStatus {
    checkGroup(plan);
    const members = plan.members.map((m) => ({ ...m, plan: planOf(plan, m) }));
    const g: GroupStatus = {
      id: `group-draft-${++this.ids}`, state: "draft", generation: 1, created_at: iso(now), created_by: by, plan: { ...plan, members },
      members: plan.members.map((m) => ({ name: m.name, state: "pending" })),
      progress: plan.members.map((m) => ({ name: m.name, state: "pending", version: plan.desired_versions[m.name]! })),
    };
    this.all.unshift(g);
    return g;
  }

  preview(id: string, now: number, dryRun: (plan: Plan) => Preview): GroupPreview {
    const g = this.get(id);
    const of = g.plan.members.map((m) => ({ m, p: dryRun(m.plan) }));
    const sum = (times: string[]) => goDuration(times.reduce((n, t) => n + millis(t, 0), 0) + g.plan.members.slice(0, -1).reduce((n, m) => n + millis(m.soak, 0), 0));
    return {
      group_id: id, at: iso(now), hash: `sha256:${of.map(({ p }) => p.hash.slice(7, 39)).join("").slice(0, 64)}`,
      at_least: sum(of.map(({ p }) => p.at_least)), estimate: sum(of.map(({ p }) => p.estimate)),
      members: of.map(({ m, p }) => ({
        name: m.name, version: m.plan.version!, hash: p.hash, targets: p.targets.length, skipped: p.skipped.length, batches: p.batches.length,
        offline: p.offline, at_least: p.at_least, estimate: p.estimate, warnings: p.warnings,
      })),
    };
  }

  start(id: string, now: number, by: string): GroupStatus {
    const g = this.get(id);
    if (g.state !== "draft") throw new Refusal(409, `${g.plan.name} has been started already.`);
    Object.assign(g, { state: "running", started_at: iso(now), started_by: by, waiting: `member ${g.members[0]!.name} is being upgraded` });
    g.members[0]!.state = g.progress[0]!.state = "running";
    return g;
  }

  delete(id: string): void {
    if (this.get(id).state !== "draft") throw new Refusal(409, "Only drafts can be deleted.");
    this.all = this.all.filter((g) => g.id !== id);
  }

  command(id: string, verb: string, member?: string): GroupStatus {
    const g = this.get(id);
    const next: Record<string, GroupState> = { pause: "paused", resume: "running", skip: "running", cancel: "cancelled", rollback: "rolled_back" };
    g.state = next[verb] ?? g.state;
    g.stop = verb === "pause" ? { kind: "operator", text: "first admin key paused it", by: "first admin key", at: iso(Date.now()) } : undefined;
    for (const m of [...g.members, ...g.progress]) {
      if (verb === "skip" && m.name === member) m.state = "skipped";
      if (verb === "rollback") m.state = m.state === "pending" ? "cancelled" : "rolled_back";
    }
    return g;
  }
}

const planOf = (group: GroupPlan, m: GroupPlan["members"][number]): Plan => ({ ...m.plan, name: m.plan.name || `${group.name}: ${m.name}`, version: group.desired_versions[m.name] });

/** checkGroup refuses the most frequent errors, with the server's messages. */
function checkGroup(plan: GroupPlan | undefined): asserts plan is GroupPlan {
  if (!plan || typeof plan !== "object") throw new Refusal(400, "[request body.plan]: is missing");
  const known = ["name", "description", "failure_policy", "desired_versions", "members", "accept_drift"];
  for (const key of Object.keys(plan)) if (!known.includes(key)) throw new Refusal(400, `[request body.plan.${key}]: is not a known key`);
  if (!["partial_ok", "rollback_all", "manual"].includes(plan.failure_policy)) throw new Refusal(400, `[request body.plan.failure_policy]: is "${plan.failure_policy}", want partial_ok, rollback_all or manual`);
  for (const [i, m] of plan.members.entries()) {
    if (!plan.desired_versions[m.name]) throw new Refusal(400, `[request body.plan.desired_versions]: has no version for members[${i}], ${m.name}: give one`);
    try {
      check(planOf(plan, m));
      if (!m.plan?.select) throw new Refusal(400, "[request body.plan.select]: is empty: name agents, policies or labels, a kuery, or set all");
    } catch (error) {
      if (error instanceof Refusal) throw new Refusal(error.status, error.message.replace("body.plan.", `body.plan.members[${i}].plan.`));
      throw error;
    }
  }
}
