/** Changes of groups of rollouts. Reading them is in queries.ts. */
import type { GroupCommand } from "~/util/group/group";
import { call } from "./client";
import type { Group, GroupPlan } from "./types";

export const createGroup = async (plan: GroupPlan): Promise<Group> => (await call("post", "/api/v1/rollout-groups", { body: { plan } })).item;

export interface GroupAsk {
  id: string;
  what: GroupCommand;
  why: string;
  /** Of the member that is left out. */
  member?: string;
  /** Of the preview that is started. */
  hash?: string;
}

export async function groupCommand({ id, what, why, member, hash }: GroupAsk): Promise<void> {
  const body = { why: why || undefined };
  const path = { groupId: id };
  switch (what) {
    case "start":
      await call("post", "/api/v1/rollout-groups/{groupId}/start", { path, body: { ...body, hash: hash ?? "" } });
      return;
    case "pause":
    case "pause_now":
      await call("post", "/api/v1/rollout-groups/{groupId}/pause", { path, body: { ...body, now: what === "pause_now" } });
      return;
    case "resume":
      await call("post", "/api/v1/rollout-groups/{groupId}/resume", { path, body });
      return;
    case "cancel":
      await call("post", "/api/v1/rollout-groups/{groupId}/cancel", { path, body });
      return;
    case "rollback":
      await call("post", "/api/v1/rollout-groups/{groupId}/rollback", { path, body });
      return;
    case "skip":
      await call("post", "/api/v1/rollout-groups/{groupId}/skip", { path, body: { ...body, member: member ?? "" } });
      return;
    case "delete":
      await call("delete", "/api/v1/rollout-groups/{groupId}", { path, query: body });
  }
}
