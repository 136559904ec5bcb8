/** Groups of rollouts for the mock: two examples. Commands change their states, and nothing executes them. */
import type { Counts, GroupMember, GroupMemberState, GroupState, GroupStatus } from "../app/api/types";
import { iso } from "./fleet.ts";
import { Refusal } from "./preview.ts";
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
  readonly all: GroupStatus[];

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
