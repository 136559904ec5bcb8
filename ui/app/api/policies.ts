/** Queries and changes of policies. */
import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import type { components } from "./__generated__/admin";
import { call } from "./client";
import { keys, POLL_MS } from "./queries";

export const POLICIES_PER_PAGE = 50;

/** By what the server sorts policies, of the columns that the page has. */
export const POLICY_SORTS = ["name", "revision", "updated_at"] as const;

export const policyPageQuery = (page: number, sort: string, desc: boolean) =>
  queryOptions({
    queryKey: [...keys.policies, "page", { page, sort, desc }] as const,
    queryFn: ({ signal }) =>
      call("get", "/api/fleet/agent_policies", { query: { page, perPage: POLICIES_PER_PAGE, sortField: sort, sortOrder: desc ? "desc" : "asc" }, signal }),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
  });

export const policyQuery = (id: string) =>
  queryOptions({
    queryKey: [...keys.policies, "one", id] as const,
    queryFn: async ({ signal }) => (await call("get", "/api/fleet/agent_policies/{policyId}", { path: { policyId: id }, signal })).item,
    refetchInterval: POLL_MS,
  });

/** Which versions the hosts of a policy run. The server reads its hosts for it, so it is polled, and no event makes it stale. */
export const policyVersionsQuery = (id: string) =>
  queryOptions({
    queryKey: ["policy-versions", id] as const,
    queryFn: ({ signal }) => call("get", "/api/fleet/agent_policies/{policyId}/auto_upgrade_agents_status", { path: { policyId: id }, signal }),
    refetchInterval: POLL_MS,
  });

type Request = components["schemas"]["PolicyRequest"];

/** Absent fields keep their values; null clears one. */
export type PolicyChange = Omit<components["schemas"]["UpdatePolicyRequest"], "bumpRevision" | "inactivity_timeout"> & { inactivity_timeout?: number };

export const createPolicy = async (name: string, description: string, why: string) =>
  (await call("post", "/api/fleet/agent_policies", { body: { name, namespace: "default", description: description || undefined } as Request, why })).item;

export const updatePolicy = async (id: string, body: PolicyChange, why: string) =>
  (await call("put", "/api/fleet/agent_policies/{policyId}", { path: { policyId: id }, body: body as components["schemas"]["UpdatePolicyRequest"], why })).item;

export const copyPolicy = async (id: string, name: string, why: string) =>
  (await call("post", "/api/fleet/agent_policies/{policyId}/copy", { path: { policyId: id }, body: { name }, why })).item;

/** Managed policies are deleted with force only. */
export const deletePolicy = (id: string, force: boolean, why: string) =>
  call("post", "/api/fleet/agent_policies/delete", { body: { agentPolicyId: id, force: force || undefined }, why });
