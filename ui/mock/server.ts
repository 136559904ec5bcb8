/** The admin API over a MockFleet, as a plain Node request handler. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { FleetEvent } from "../app/api/types";
import type { MockComponents } from "./components.ts";
import { answerDeclared, refusing, type MockDeclared } from "./declared.ts";
import type { MockFleet } from "./fleet.ts";
import { QueryError, read, suggest } from "./query.ts";
import { answerRollouts } from "./rolloutRoutes.ts";
import type { MockRollouts } from "./rollouts.ts";

const COOKIE = "muster_session=mock";
/** The key that the mock refuses, to see the login error. */
const WRONG_KEY = "wrong";

type Body = Record<string, unknown>;
interface Mock {
  fleet: MockFleet;
  components: MockComponents;
  declared: MockDeclared;
}
interface Call extends Mock {
  url: URL;
  args: string[];
  body: Body;
}
type Answer = [status: number, body: unknown];
type Route = [method: string, path: RegExp, handle: (c: Call) => Answer];

const ok = (body: unknown): Answer => [200, body];
const refuse = (status: number, error: string, message: string): Answer => [status, { statusCode: status, error, message }];
class Refusal extends Error {
  readonly answer: Answer;
  constructor(...args: Parameters<typeof refuse>) {
    super(args[2]);
    this.answer = refuse(...args);
  }
}

const attempt = (handle: () => Answer): Answer => {
  try {
    return handle();
  } catch (error) {
    if (error instanceof Refusal) return error.answer;
    throw error;
  }
};

/** The agents of a request: ids, or those that a list shows for a query. */
const chosen = (fleet: MockFleet, { agents, includeInactive }: Body): string[] => {
  if (typeof agents !== "string") return words(agents);
  if (agents.trim() === "") throw new Refusal(400, "Bad Request", '[request body.agents]: is the empty query: use "*" to select all agents');
  return find(fleet, agents, includeInactive === true, "body.agents").map((a) => a.id);
};
const find = (fleet: MockFleet, kuery: string, inactive: boolean, field: string) => {
  try {
    return fleet.list(inactive).filter(read(kuery));
  } catch (error) {
    if (error instanceof QueryError) throw new Refusal(400, "Bad Request", `[request ${field}]: ${error.message}`);
    throw error;
  }
};
/** The refusal of an order for agents that belong to a fleet. */
const owned = (declared: MockDeclared, agents: readonly string[], body: Body): Answer | undefined => {
  const answer = refusing(() => (declared.own(agents, body.take_over, body.why as string | undefined), ok({})));
  return answer[0] === 200 ? undefined : answer;
};
const words = (v: unknown): string[] => (Array.isArray(v) ? v.map(String) : []);
const page = <T>(items: T[]) => ({ items, total: items.length, page: 1, perPage: Math.max(20, items.length) });

const routes: Route[] = [
  ["GET", /^\/api\/v1\/session$/, () => ok({ key_id: "first", name: "first admin key", expires_at: new Date(Date.now() + 36e5).toISOString() })],
  ["GET", /^\/api\/v1\/server$/, ({ fleet }) => ok({
    version: "1.0.0", agent_url: "https://muster.example.com:8220",
    ca_pin: "sha256:5f0c4d2e8a91b7c63f0d2e8a91b7c65f0c4d2e8a91b7c63f0d2e8a91b7c65f0c",
    publisher_keys: fleet.publisherKeys.map((k) => k.public_key), now: new Date().toISOString(),
  })],
  ["GET", /^\/api\/v1\/servers$/, ({ fleet }) => ok({ items: fleet.servers, remarks: [] })],
  ["DELETE", /^\/api\/v1\/servers\/([^/]+)$/, ({ fleet, args }) => {
    fleet.servers = fleet.servers.filter((s) => s.id !== args[0]);
    return ok({ action: "deleted" });
  }],
  ["GET", /^\/api\/fleet\/agents$/, ({ fleet, url }) => {
    const found = page(find(fleet, url.searchParams.get("kuery") ?? "", url.searchParams.get("showInactive") === "true", "query.kuery"));
    return ok(url.searchParams.get("perPage") === "0" ? { ...found, items: [], perPage: 0 } : { ...found, perPage: 10_000 });
  }],
  ["GET", /^\/api\/v1\/kql\/suggest$/, ({ fleet, url }) => {
    const q = url.searchParams.get("q") ?? "";
    return ok({ items: suggest([...fleet.agents.values()], q, Number(url.searchParams.get("cursor") ?? Buffer.byteLength(q))) });
  }],
  ["GET", /^\/api\/fleet\/agents\/action_status$/, ({ fleet }) => ok({ items: fleet.actions })],
  ["GET", /^\/api\/fleet\/agents\/available_versions$/, ({ fleet }) => ok({ items: [...new Set(fleet.packages.map((p) => p.version))].reverse() })],
  ["POST", /^\/api\/fleet\/agents\/bulk_upgrade$/, ({ fleet, declared, body }) =>
    owned(declared, chosen(fleet, body), body) ?? ok({ actionId: fleet.upgrade(chosen(fleet, body), String(body.version), body.force === true, body.start_time as string | undefined, body.rollout_duration_seconds as number | undefined) })],
  ["POST", /^\/api\/fleet\/agents\/actions\/([^/]+)\/cancel$/, ({ fleet, args }) =>
    fleet.cancel(args[0]!)
      ? ok({ item: { id: `cancel-${args[0]}`, type: "CANCEL", created_at: new Date().toISOString() } })
      : refuse(409, "Conflict", "The action is over; nothing is left to cancel.")],
  ["GET", /^\/api\/fleet\/agents\/([^/]+)$/, ({ fleet, args }) => {
    const agent = fleet.agents.get(args[0]!);
    return agent ? ok({ item: agent }) : refuse(404, "Not Found", `There is no agent ${args[0]}.`);
  }],
  ["POST", /^\/api\/fleet\/agents\/([^/]+)\/upgrade$/, ({ fleet, declared, args, body }) => {
    const refused = owned(declared, [args[0]!], body);
    if (refused) return refused;
    const [item] = fleet.preview([args[0]!], String(body.version), body.force === true).items;
    return item?.will ? ok({ actionId: fleet.upgrade([args[0]!], String(body.version), body.force === true) }) : refuse(400, "Bad Request", item?.reason ?? "refused");
  }],
  ["POST", /^\/api\/fleet\/agents\/([^/]+)\/unenroll$/, ({ fleet, args }) => (fleet.unenroll(args[0]!), ok({}))],
  ["GET", /^\/api\/v1\/components$/, ({ components }) => ok({ items: components.list() })],
  ["POST", /^\/api\/v1\/components\/([^/]+)\/upgrade_preview$/, ({ fleet, components, args, body }) => ok(components.preview(args[0]!, chosen(fleet, body), String(body.version), body.force === true || body.rollback === true))],
  ["POST", /^\/api\/v1\/components\/([^/]+)\/upgrade$/, ({ fleet, components, args, body }) => ok({ actionId: components.upgrade(args[0]!, chosen(fleet, body), String(body.version), body.force === true || body.rollback === true) })],
  ["POST", /^\/api\/v1\/unenroll_preview$/, ({ fleet, body }) => ok(fleet.previewUnenroll(chosen(fleet, body)))],
  ["POST", /^\/api\/fleet\/agents\/bulk_unenroll$/, ({ fleet, body }) => ok({ actionId: fleet.unenrollAll(chosen(fleet, body), body.revoke === true) })],
  ["POST", /^\/api\/v1\/rollback_preview$/, ({ fleet, body }) => ok(fleet.previewRollback(chosen(fleet, body)))],
  ["POST", /^\/api\/fleet\/agents\/bulk_rollback$/, ({ fleet, body }) => ok({ actionIds: fleet.rollback(chosen(fleet, body)) })],
  ["POST", /^\/api\/fleet\/agents\/([^/]+)\/rollback$/, ({ fleet, args }) => {
    const [item] = fleet.previewRollback([args[0]!]).items;
    return item?.will ? ok({ actionId: fleet.rollback([args[0]!])[0] }) : refuse(400, "Bad Request", item?.reason ?? "refused");
  }],
  ["POST", /^\/api\/v1\/upgrade_preview$/, ({ fleet, body }) => ok(fleet.preview(chosen(fleet, body), String(body.version), body.force === true))],
  ["GET", /^\/api\/fleet\/enrollment_api_keys$/, ({ fleet }) => ok(page(fleet.keys))],
  ["POST", /^\/api\/fleet\/enrollment_api_keys$/, ({ fleet, body }) =>
    ok({ action: "created", item: fleet.createKey(String(body.name ?? ""), String(body.policy_id), body.expiration as string | undefined) })],
  ["DELETE", /^\/api\/fleet\/enrollment_api_keys\/([^/]+)$/, ({ fleet, args }) => {
    const key = fleet.keys.find((k) => k.id === args[0]);
    if (!key) return refuse(404, "Not Found", `There is no enrollment key ${args[0]}.`);
    key.active = false;
    fleet.emit("key.revoked", key.id, {});
    return ok({ action: "deleted" });
  }],
  ["GET", /^\/api\/v1\/admin_keys$/, ({ fleet }) => ok(page(fleet.adminKeys))],
  ["POST", /^\/api\/v1\/admin_keys$/, ({ fleet, body }) => {
    const item = fleet.createAdminKey(String(body.name), body.expiration as string | undefined);
    return item ? ok({ item }) : refuse(409, "Conflict", `A key with the name ${String(body.name)} is in use: rotate it for another secret, revoke it, or choose another name.`);
  }],
  ["POST", /^\/api\/v1\/admin_keys\/([^/]+)\/rotate$/, ({ fleet, args }) => {
    const old = fleet.adminKeys.find((k) => k.id === args[0] && k.active);
    if (!old) return refuse(409, "Conflict", "The admin API key has been revoked: create another key instead.");
    fleet.revokeAdminKey(old.id);
    return ok({ item: fleet.createAdminKey(old.name) });
  }],
  ["DELETE", /^\/api\/v1\/admin_keys\/([^/]+)$/, ({ fleet, args }) => {
    if (!fleet.adminKeys.some((k) => k.active && k.id !== args[0])) return refuse(409, "Conflict", "No other admin key is usable, so revoking this one would lock everybody out: rotate it for another secret, or create another key first.");
    fleet.revokeAdminKey(args[0]!);
    return ok({ action: "revoked" });
  }],
  ["GET", /^\/api\/fleet\/agent_policies$/, ({ fleet }) => ok(page(fleet.policies.map((p) => ({ ...p, agents: fleet.list(false).filter((a) => a.policy_id === p.id).length }))))],
  ["GET", /^\/api\/v1\/packages$/, ({ fleet }) => ok({ items: [...fleet.packages, ...fleet.componentPackages] })],
  ["DELETE", /^\/api\/v1\/packages\/([^/]+)$/, ({ fleet, args }) => {
    fleet.packages = fleet.packages.filter((p) => p.file !== args[0]);
    fleet.componentPackages = fleet.componentPackages.filter((p) => p.file !== args[0]);
    fleet.emit("package.deleted", args[0]!, {});
    return ok({ action: "deleted" });
  }],
  ["GET", /^\/api\/v1\/publisher_keys$/, ({ fleet }) => ok({ items: fleet.publisherKeys })],
  ["POST", /^\/api\/v1\/publisher_keys$/, ({ fleet, body }) => {
    if (!/^RW/.test(String(body.public_key))) return refuse(400, "Bad Request", "public_key is not a minisign key; paste the line that starts with RW.");
    const item = { id: `${Date.now().toString(16)}00000`.slice(0, 16), public_key: String(body.public_key), name: String(body.name ?? ""), added_at: new Date().toISOString(), added_by: "first admin key" };
    fleet.publisherKeys.push(item);
    return ok({ item });
  }],
];

export async function answer(mock: Mock, rollouts: MockRollouts, req: IncomingMessage, res: ServerResponse): Promise<void> {
  const url = new URL(req.url ?? "/", "http://mock");
  const body = await readBody(req);
  const loggedIn = (req.headers.cookie ?? "").includes(COOKIE);
  if (url.pathname === "/api/v1/session" && req.method !== "GET") return session(req, res, body);
  if (!loggedIn) return send(res, refuse(401, "Unauthorized", "Log in with an admin API key."));
  if (req.method !== "GET" && !req.headers["kbn-xsrf"]) return send(res, refuse(400, "Bad Request", "The header kbn-xsrf is missing."));
  if (url.pathname === "/api/v1/events") return stream(mock.fleet, url, req, res);
  const answered = answerRollouts(rollouts, req.method ?? "GET", url, body) ?? answerDeclared(mock.declared, req.method ?? "GET", url, body);
  if (answered) return send(res, answered);
  for (const [method, path, handle] of routes) {
    const match = method === req.method ? path.exec(url.pathname) : null;
    if (match) return send(res, attempt(() => handle({ ...mock, url, args: match.slice(1).map(decodeURIComponent), body })));
  }
  send(res, refuse(404, "Not Found", `${req.method} ${url.pathname} is not part of the mock.`));
}

function session(req: IncomingMessage, res: ServerResponse, body: Body): void {
  if (req.method === "DELETE") {
    res.setHeader("Set-Cookie", "muster_session=; Path=/; Max-Age=0");
    return send(res, ok({}));
  }
  if (!body.api_key || body.api_key === WRONG_KEY) return send(res, refuse(401, "Unauthorized", "No admin key has this id and secret. Paste it whole, as the server printed it."));
  res.setHeader("Set-Cookie", `${COOKIE}; Path=/; HttpOnly; SameSite=Strict`);
  send(res, ok({ key_id: "first", name: "first admin key", expires_at: new Date(Date.now() + 36e5).toISOString() }));
}

function stream(fleet: MockFleet, url: URL, req: IncomingMessage, res: ServerResponse): void {
  res.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no" });
  res.write(": hello\n\n");
  const resume = req.headers["last-event-id"] ?? url.searchParams.get("after");
  const write = (e: FleetEvent) => res.write(`id: ${e.seq}\nevent: ${e.type}\ndata: ${JSON.stringify(e)}\n\n`);
  const stop = fleet.subscribe(write, resume === null || resume === undefined ? null : Number(resume));
  const alive = setInterval(() => res.write(": alive\n\n"), 15_000);
  req.on("close", () => {
    clearInterval(alive);
    stop();
  });
}

function send(res: ServerResponse, [status, body]: Answer): void {
  res.writeHead(status, { "Content-Type": "application/json", "Cache-Control": "no-store" });
  res.end(JSON.stringify(body));
}

async function readBody(req: IncomingMessage): Promise<Body> {
  let text = "";
  for await (const chunk of req) text += String(chunk);
  try {
    return text === "" ? {} : (JSON.parse(text) as Body);
  } catch {
    return {};
  }
}
