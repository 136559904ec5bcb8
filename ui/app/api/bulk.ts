/** Orders for many hosts beside upgrades, and the exact number of hosts that each is for. */
import { queryOptions } from "@tanstack/react-query";
import { type Chosen, isMatching, selectionOf } from "~/util/agents/chosen";
import type { OverLimit } from "~/util/agents/removalLimit";
import { call } from "./client";
import { keys } from "./queries";

/** Named agents are meant also if they are inactive. */
const whom = (chosen: Chosen) => ({ ...selectionOf(chosen), includeInactive: isMatching(chosen) ? chosen.inactive : true });

export interface TagChange {
  add: string[];
  remove: string[];
}

export const tagsQuery = queryOptions({
  queryKey: [...keys.facets, "all-tags"] as const,
  queryFn: async ({ signal }) => (await call("get", "/api/fleet/agents/tags", { signal })).items,
});

/** How many hosts would get an order, and what to know before it is given; the server answers without giving it. */
export const orderCountQuery = (kind: "tags" | "policy" | "diagnostics", chosen: Chosen, policyId?: string) =>
  queryOptions({
    queryKey: [...keys.preview, "count", kind, selectionOf(chosen), policyId] as const,
    queryFn: async ({ signal }): Promise<{ count: number; warnings: readonly string[] }> => {
      switch (kind) {
        case "tags":
          return counted(
            await call("post", "/api/fleet/agents/bulk_update_agent_tags", { body: { ...whom(chosen), tagsToAdd: ["preview"], dryRun: true }, signal }),
          );
        case "policy":
          return counted(await call("post", "/api/fleet/agents/bulk_reassign", { body: { ...whom(chosen), policy_id: policyId!, dryRun: true }, signal }));
        case "diagnostics":
          return counted(
            await call("post", "/api/fleet/agents/bulk_request_diagnostics", { body: { agents: selectionOf(chosen).agents, dryRun: true }, signal }),
          );
      }
    },
    enabled: kind !== "policy" || !!policyId,
    staleTime: 0,
    gcTime: 60_000,
    retry: false,
  });

const counted = ({ count = 0, warnings = [] }: { count?: number; warnings?: readonly string[] }) => ({ count, warnings });

export const changeTags = async (chosen: Chosen, { add, remove }: TagChange) =>
  (await call("post", "/api/fleet/agents/bulk_update_agent_tags", { body: { ...whom(chosen), tagsToAdd: add, tagsToRemove: remove } })).actionId;

/** With overLimit also more hosts than the removal limit. */
export const reassign = async (chosen: Chosen, policyId: string, overLimit?: OverLimit) =>
  (await call("post", "/api/fleet/agents/bulk_reassign", { body: { ...whom(chosen), policy_id: policyId, ...overLimit } })).actionId;

export const requestDiagnostics = async (chosen: Chosen, options: { cpu: boolean; withoutEvents: boolean }) =>
  (
    await call("post", "/api/fleet/agents/bulk_request_diagnostics", {
      body: {
        agents: selectionOf(chosen).agents,
        additional_metrics: options.cpu ? ["CPU"] : undefined,
        exclude_events_log: options.withoutEvents || undefined,
      },
    })
  ).actionId;

/** failuresSeen clears the badge of failed upgrades for who asks. */
export const failuresSeen = () => call("post", "/api/v1/failures/seen", { body: {} });
