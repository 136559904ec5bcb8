/** Why an agent of the mock runs its version. */
import type { Explanation } from "../app/api/types";
import { host, iso } from "./fleet.ts";
import type { MockRollouts } from "./rollouts.ts";
import { Refusal } from "./preview.ts";

export function explain(m: MockRollouts, agentId: string, at: string | null): Explanation {
  const a = m.fleet.agents.get(agentId);
  if (!a) throw new Refusal(404, `There is no agent ${agentId}.`);
  const when = at ? Date.parse(at) : m.now();
  const base = { agent_id: agentId, at: iso(when) };
  const runs = `${host(a)} runs ${a.agent.version}`;
  const e = m.list().map((r) => m.get(r.id)).find((x) => x.targets.some((t) => t.agent_id === agentId) && Date.parse(x.rollout.started_at ?? "9999") <= when);
  if (!e) {
    return { ...base, summary: `${runs}: no rollout is concerned`, chain: [], next: "Upgrade it by hand, or create a rollout that selects it." };
  }
  const r = e.rollout;
  const t = e.targets.find((x) => x.agent_id === agentId)!;
  const chain: Explanation["chain"] = [
    { code: r.state === "paused" ? r.stop?.kind ?? "paused" : r.state === "running" ? "next" : "over", text: r.stop?.text ?? `rollout ${r.plan.name} is ${r.state}`, since: r.stop?.at ?? r.started_at },
    ...(r.waiting ?? []).map((w) => ({ code: w.code, text: w.text, since: w.since, until: w.until })),
    { code: t.code ?? "next", text: `it is in batch ${t.batch + 1} and ${t.state}${t.error ? `: ${t.error}` : ""}`, since: t.ended_at ?? t.offered_at },
  ];
  return {
    ...base, rollout_id: r.id, rollout_name: r.plan.name, chain,
    summary: t.state === "succeeded" ? `${runs}, the version of rollout ${r.plan.name}` : `${runs} and not ${t.to}: ${t.error ?? chain[0]!.text}`,
    next: r.state === "paused" ? "It continues when an operator resumes the rollout, with a reason." : undefined,
  };
}
