/** Queries and changes of the keys that give access: enrolment keys of hosts, admin keys of people and programs. */
import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { quoted } from "~/util/kql";
import { call } from "./client";
import { keys, POLL_MS } from "./queries";

export const KEYS_PER_PAGE = 50;

export const enrollmentKeyPageQuery = (page: number) =>
  queryOptions({
    queryKey: [...keys.enrollmentKeys, "page", page] as const,
    queryFn: ({ signal }) => call("get", "/api/fleet/enrollment_api_keys", { query: { page, perPage: KEYS_PER_PAGE }, signal }),
    placeholderData: keepPreviousData,
  });

/** The newest keys with which hosts can enrol into a policy. */
export const policyKeysQuery = (policyId: string) =>
  queryOptions({
    queryKey: [...keys.enrollmentKeys, "policy", policyId] as const,
    queryFn: async ({ signal }) =>
      (
        await call("get", "/api/fleet/enrollment_api_keys", {
          query: { perPage: KEYS_PER_PAGE, kuery: `policy_id: ${quoted(policyId)} and active: true` },
          signal,
        })
      ).items,
    enabled: policyId !== "",
  });

/** The command that installs and enrols a host, for each platform, without the token. */
export const enrollmentCommandsQuery = queryOptions({
  queryKey: ["enrollment_commands"] as const,
  queryFn: ({ signal }) => call("get", "/api/v1/enrollment_commands", { signal }),
  refetchInterval: POLL_MS,
});

/** A number of d, h, m or s; empty: until it is revoked. */
export const createEnrollmentKey = async (policyId: string, name: string, expiration: string, why: string) =>
  (await call("post", "/api/fleet/enrollment_api_keys", { body: { policy_id: policyId, name: name || undefined, expiration: expiration || undefined }, why }))
    .item;

export const revokeEnrollmentKey = (keyId: string, why: string) => call("delete", "/api/fleet/enrollment_api_keys/{keyId}", { path: { keyId }, why });

/** The hosts that enrolled into a policy since a time, the newest first. Each enrolment makes it stale. */
export const arrivalsQuery = (policyId: string, since: string) =>
  queryOptions({
    queryKey: [...keys.agentPages, "arrivals", policyId, since] as const,
    queryFn: ({ signal }) =>
      call("get", "/api/fleet/agents", {
        query: { perPage: 3, sortField: "enrolled_at", sortOrder: "desc", kuery: `enrolled_at >= ${quoted(since)} and policy_id: ${quoted(policyId)}` },
        signal,
      }),
    enabled: policyId !== "" && since !== "",
    refetchInterval: POLL_MS,
  });

export const adminKeyPageQuery = (page: number) =>
  queryOptions({
    queryKey: [...keys.adminKeys, "page", page] as const,
    queryFn: ({ signal }) => call("get", "/api/v1/admin_keys", { query: { page, perPage: KEYS_PER_PAGE }, signal }),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
  });

/** A Go duration; empty: until it is revoked. */
export const createAdminKey = async (name: string, expiration: string, why: string) =>
  (await call("post", "/api/v1/admin_keys", { body: { name, expiration: expiration || undefined }, why })).item;

/** The old key stays usable for the time of grace; without one it is revoked at once. */
export const rotateAdminKey = async (keyId: string, grace: string, why: string) =>
  (await call("post", "/api/v1/admin_keys/{keyId}/rotate", { path: { keyId }, body: { grace: grace || undefined }, why })).item;

export const revokeAdminKey = (keyId: string, why: string) => call("delete", "/api/v1/admin_keys/{keyId}", { path: { keyId }, why });

export const logIn = (apiKey: string) => call("post", "/api/v1/session", { body: { api_key: apiKey } });

export const forgetServer = (serverId: string, why: string) => call("delete", "/api/v1/servers/{serverId}", { path: { serverId }, why });
