/** The routes of the mock's API for rollouts. */
import type { GroupPlan, Plan, Target } from "../app/api/types";
import { explain } from "./explain.ts";
import { iso } from "./fleet.ts";
import type { MockRollouts } from "./rollouts.ts";
import { Refusal } from "./preview.ts";

type Body = Record<string, unknown>;
type Answer = [status: number, body: unknown];
interface Call {
  m: MockRollouts;
  url: URL;
  args: string[];
  body: Body;
}

const ok = (body: unknown): Answer => [200, body];
const one = (item: unknown): Answer => ok({ item });
const ME = "first admin key";

function page<T>(items: T[], url: URL): Answer {
  const n = Number(url.searchParams.get("page") ?? 1);
  const perPage = Number(url.searchParams.get("perPage") ?? 20);
  return ok({ items: items.slice((n - 1) * perPage, n * perPage), total: items.length, page: n, perPage });
}

const routes: [method: string, path: RegExp, handle: (c: Call) => Answer][] = [
  ["GET", /^\/api\/v1\/rollouts$/, ({ m, url }) => page(m.list().map((r) => ({ ...r, batches: undefined })), url)],
  ["POST", /^\/api\/v1\/rollouts$/, ({ m, body }) => one(m.create(body.plan as Plan).rollout)],
  ["POST", /^\/api\/v1\/rollout_preview$/, ({ m, body }) => one(m.dryRun(body.plan as Plan))],
  ["GET", /^\/api\/v1\/rollouts\/([^/]+)$/, ({ m, args }) => one(m.get(args[0]!).rollout)],
  ["DELETE", /^\/api\/v1\/rollouts\/([^/]+)$/, ({ m, args }) => (m.delete(args[0]!), ok({ action: "deleted" }))],
  ["POST", /^\/api\/v1\/rollouts\/([^/]+)\/preview$/, ({ m, args }) => one(m.preview(args[0]!))],
  ["GET", /^\/api\/v1\/rollouts\/([^/]+)\/previews\/([^/]+)\/configs$/, ({ m, args, url }) => page(m.configs(args[1]!, url.searchParams.getAll("agent")), url)],
  ["POST", /^\/api\/v1\/rollouts\/([^/]+)\/start$/, ({ m, args, body }) => one(m.start(args[0]!, String(body.hash), body.accept_drift === true, body.why as string | undefined))],
  ["POST", /^\/api\/v1\/rollouts\/([^/]+)\/(pause|resume|force|approve|cancel|retry|skip|rollback)$/, ({ m, args, body }) => one(m.command(args[0]!, args[1]!, body))],
  ["GET", /^\/api\/v1\/rollouts\/([^/]+)\/targets$/, ({ m, args, url }) => {
    const states = url.searchParams.getAll("state");
    const batch = url.searchParams.get("batch");
    const fits = (t: Target) => (states.length === 0 || states.includes(t.state)) && (batch === null || t.batch === Number(batch));
    return page(m.get(args[0]!).targets.filter(fits), url);
  }],
  ["GET", /^\/api\/v1\/rollouts\/([^/]+)\/audit$/, ({ m, args, url }) => page(m.get(args[0]!).audit, url)],
  ["GET", /^\/api\/v1\/audit$/, ({ url }) => page([], url)],
  ["GET", /^\/api\/v1\/rollout-groups$/, ({ m, url }) => page(m.groups.all, url)],
  ["POST", /^\/api\/v1\/rollout-groups$/, ({ m, body }) => one(m.groups.create(body.plan as GroupPlan, m.now(), ME))],
  ["POST", /^\/api\/v1\/rollout-groups\/([^/]+)\/preview$/, ({ m, args }) => one(m.groups.preview(args[0]!, m.now(), (plan) => m.dryRun(plan)))],
  ["POST", /^\/api\/v1\/rollout-groups\/([^/]+)\/start$/, ({ m, args }) => one(m.groups.start(args[0]!, m.now(), ME))],
  ["DELETE", /^\/api\/v1\/rollout-groups\/([^/]+)$/, ({ m, args }) => (m.groups.delete(args[0]!), ok({ action: "deleted" }))],
  ["GET", /^\/api\/v1\/rollout-groups\/([^/]+)$/, ({ m, args }) => one(m.groups.get(args[0]!))],
  ["POST", /^\/api\/v1\/rollout-groups\/([^/]+)\/(pause|resume|skip|cancel|rollback)$/, ({ m, args, body }) => {
    const g = m.groups.command(args[0]!, args[1]!, body.member as string | undefined);
    m.fleet.emit("group.progress", g.id, {}, ME);
    return one(g);
  }],
  ["GET", /^\/api\/v1\/agents\/([^/]+)\/why$/, ({ m, args, url }) => one(explain(m, args[0]!, url.searchParams.get("at")))],
  ["GET", /^\/api\/v1\/exposure$/, ({ m }) => one(m.rule)],
  ["PUT", /^\/api\/v1\/exposure$/, ({ m, body }) => {
    m.rule = { ...m.rule, ...(body as object), updated_at: iso(m.now()), updated_by: ME };
    return one(m.rule);
  }],
  ["GET", /^\/api\/v1\/freezes$/, ({ m }) => ok({ items: m.freezes })],
  ["POST", /^\/api\/v1\/freezes$/, ({ m, body }) => {
    const freeze = { id: `freeze-${m.freezes.length + 1}-${m.now()}`, name: String(body.name), from: String(body.from), to: String(body.to), created_at: iso(m.now()), created_by: ME };
    m.freezes.push(freeze);
    return one(freeze);
  }],
  ["DELETE", /^\/api\/v1\/freezes\/([^/]+)$/, ({ m, args }) => {
    m.freezes = m.freezes.filter((f) => f.id !== args[0]);
    return ok({ action: "deleted" });
  }],
  ["GET", /^\/api\/v1\/incidents$/, ({ m, url }) => page(m.incidents, url)],
  ["POST", /^\/api\/v1\/incidents\/([^/]+)\/(ack|resolve)$/, ({ m, args, body }) => {
    const incident = m.incidents.find((i) => i.id === args[0]);
    if (!incident) throw new Refusal(404, `There is no incident ${args[0]}.`);
    const word = { by: ME, at: iso(m.now()), why: (body.why as string) || undefined };
    if (args[1] === "ack") Object.assign(incident, { state: "acknowledged", acked: word });
    else Object.assign(incident, { state: "resolved", resolved: word });
    m.fleet.emit("incident.changed", incident.id, {}, ME);
    return one(incident);
  }],
];

/** answerRollouts answers requests about rollouts; undefined for others. */
export function answerRollouts(m: MockRollouts, method: string, url: URL, body: Body): Answer | undefined {
  for (const [verb, path, handle] of routes) {
    const match = verb === method ? path.exec(url.pathname) : null;
    if (!match) continue;
    try {
      return handle({ m, url, args: match.slice(1).map(decodeURIComponent), body });
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return [error.status, { statusCode: error.status, error: error.status === 409 ? "Conflict" : error.status === 404 ? "Not Found" : "Bad Request", message: error.message, ...error.more }];
    }
  }
  return undefined;
}
