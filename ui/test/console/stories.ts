/** What the stories share: orders and questions by the API, hosts that a test has for itself, and the dialogs of the pages. */
import { expect, type Locator, type Page } from "@playwright/test";
import { base, get } from "./console";

const login = new URL(process.env.MUSTER_UI_LOGIN ?? "https://localhost:8221/login");
const key = new URLSearchParams(login.hash.slice(1)).get("key") ?? "";

/** An agent, as far as the stories read it. */
export interface Host {
  id: string;
  health: string;
  agent: { version: string };
  policy_id: string;
  last_checkin: string;
  local_metadata: { host: { hostname: string } };
  progress?: { state: string; version: string; since: string; reason?: { text: string } };
  commands?: Command[];
  rollout?: { id: string; name: string };
}

export interface Command {
  name: string;
  allowed: boolean;
  reason?: string;
  primary?: boolean;
  needs_reason?: boolean;
}

export interface Facets {
  total: number;
  facets: { field: string; values: { value: string; count: number; label?: string }[] }[];
}

export interface Rollout {
  id: string;
  state: string;
  plan: { name: string; version: string };
  counts: Record<string, number>;
  commands: Command[];
  causes?: { code: string; text: string; count: number }[];
  pace?: { per_minute?: number; done_about?: string };
}

export interface Action {
  actionId: string;
  version?: string;
  outcome: string;
  nbAgentsActioned: number;
  nbAgentsActionCreated: number;
  progress?: Record<string, number>;
}

export const nameOf = (h: Host): string => h.local_metadata.host.hostname;
export const count = (n: number): string => n.toLocaleString("en-GB");
export const hosts = (n: number): string => `${count(n)} host${n === 1 ? "" : "s"}`;

/** Sends a request that changes something, and returns the answer. */
export async function send<T>(page: Page, method: "POST" | "PUT" | "DELETE", path: string, data?: unknown): Promise<T> {
  const answer = await page
    .context()
    .request.fetch(base + path, { method, data, headers: { Authorization: `ApiKey ${key}`, "kbn-xsrf": "console", Origin: base } });
  expect(answer.ok(), `${method} ${path} was answered ${answer.status()}: ${await answer.text()}`).toBe(true);
  return (await answer.json()) as T;
}

/** The hosts of a query, at most perPage, and how many there are. */
export async function find(page: Page, kuery: string, perPage = 100): Promise<{ items: Host[]; total: number }> {
  return get(page, `/api/fleet/agents?perPage=${perPage}&sortField=local_metadata.host.hostname&sortOrder=asc&kuery=${encodeURIComponent(kuery)}`);
}

export async function hostOf(page: Page, id: string): Promise<Host> {
  return (await get<{ item: Host }>(page, `/api/fleet/agents/${id}`)).item;
}

export async function facetsOf(page: Page, fields: string, kuery = ""): Promise<Facets> {
  return get(page, `/api/v1/agents/facets?fields=${fields}&kuery=${encodeURIComponent(kuery)}`);
}

export function countIn(facets: Facets, field: string, value: string): number {
  return facets.facets.find((f) => f.field === field)?.values.find((v) => v.value === value)?.count ?? 0;
}

/** The newest rollout whose name begins so, once it is in one of the states. */
export async function rolloutOf(page: Page, name: string, ...states: string[]): Promise<Rollout> {
  let found: Rollout | undefined;
  await expect
    .poll(
      async () => {
        const { items } = await get<{ items: Rollout[] }>(page, "/api/v1/rollouts?perPage=100");
        found = items.find((r) => r.plan.name.startsWith(name) && states.includes(r.state));
        return found?.state;
      },
      { message: `a rollout “${name}” that is ${states.join(" or ")}`, timeout: 30_000 },
    )
    .toBeTruthy();
  return (await get<{ item: Rollout }>(page, `/api/v1/rollouts/${found!.id}`)).item;
}

/** The rollout that its failures have paused. Its hosts carry out orders, once it has skipped them. */
export const stopped = (page: Page): Promise<Rollout> => rolloutOf(page, "Edge gateways", "paused");

interface Target {
  agent_id: string;
  state: string;
}

/** Frees hosts from the paused rollout for a test: none gets the same ones. */
export async function freeHosts(page: Page, n: number, state: "pending" | "rolled_back" = "pending"): Promise<Host[]> {
  const r = await stopped(page);
  const { items } = await get<{ items: Target[] }>(page, `/api/v1/rollouts/${r.id}/targets?perPage=100`);
  const ids = items
    .filter((t) => t.state === state)
    .slice(0, n)
    .map((t) => t.agent_id);
  expect(ids, `${n} hosts of “${r.plan.name}” are ${state}`).toHaveLength(n);
  await send(page, "POST", `/api/v1/rollouts/${r.id}/skip`, { agents: ids, why: "needed for a test" });
  for (const id of ids) await expect.poll(async () => (await hostOf(page, id)).rollout?.id).not.toBe(r.id);
  return Promise.all(ids.map((id) => hostOf(page, id)));
}

/** Orders an upgrade, and returns the id of the action. */
export async function order(page: Page, agents: string[], version: string, more: object = {}): Promise<string> {
  return (await send<{ actionId: string }>(page, "POST", "/api/fleet/agents/bulk_upgrade", { agents, version, includeInactive: true, ...more })).actionId;
}

export const cancel = (page: Page, action: string) => send(page, "POST", `/api/fleet/agents/actions/${action}/cancel`, {});

/** Waits until the upgrade of a host has one of the states. */
export async function reaches(page: Page, id: string, states: string[]): Promise<void> {
  await expect
    .poll(async () => (await hostOf(page, id)).progress?.state ?? "none", { message: `the upgrade is ${states.join(" or ")}`, timeout: 40_000 })
    .toMatch(new RegExp(`^(${states.join("|")})$`));
}

export async function actionOf(page: Page, id: string): Promise<Action> {
  const { items } = await get<{ items: Action[] }>(page, "/api/fleet/agents/action_status?perPage=100");
  const found = items.find((a) => a.actionId === id);
  expect(found, `the action ${id}`).toBeTruthy();
  return found!;
}

/** The versions that the server has packages of, newest first. */
export const versionsOf = async (page: Page): Promise<string[]> => (await get<{ items: string[] }>(page, "/api/fleet/agents/available_versions")).items;

export const table = (page: Page): Locator => page.getByRole("table", { name: "Hosts", exact: true });
export const rowOf = (page: Page, name: string): Locator => page.getByRole("row").filter({ has: page.getByRole("link", { name, exact: true }) });
/** The field of the upgrade dialog. */
export const versionField = (dialog: Locator): Locator => dialog.getByRole("combobox", { name: "Version", exact: true });
/** The row of the actions whose details are open. */
export const openRow = (page: Page): Locator => page.getByRole("row").filter({ has: page.getByRole("button", { name: /^Details of/, expanded: true }) });
export const bulk = (page: Page): Locator => page.getByRole("region", { name: "Orders for the selected hosts" });

/** Writes a version into the upgrade dialog, and closes its list. */
export async function chooseVersion(dialog: Locator, version: string): Promise<void> {
  const field = versionField(dialog);
  await field.fill(version);
  await field.press("Tab");
}

/** Presses the button that gives the order, and returns the id of the action that the server made of it. */
export async function confirm(page: Page, dialog: Locator, button: string | RegExp): Promise<string> {
  const verb = dialog.getByRole("button", { name: button });
  await expect(verb).not.toHaveAttribute("aria-disabled", "true");
  const answer = page.waitForResponse((r) => r.request().method() === "POST" && /\/(bulk_)?(upgrade|rollback)$/.test(new URL(r.url()).pathname));
  await verb.click();
  const body = (await (await answer).json()) as { actionId?: string; actionIds?: string[] };
  await expect(dialog).toBeHidden();
  return body.actionId ?? body.actionIds![0]!;
}
