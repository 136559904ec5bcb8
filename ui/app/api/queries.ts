/** Every query of the pages and its cache key. */
import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import type { Selection } from "~/util/agents/chosen";
import { call } from "./client";

/** How often lists are read again without an event: last check-ins change without events, and a stream may break unnoticed. */
export const POLL_MS = 30_000;

export const keys = {
  session: ["session"] as const,
  server: ["server"] as const,
  servers: ["servers"] as const,
  agents: ["agents"] as const,
  agentPages: ["agents", "page"] as const,
  facets: ["agents", "facets"] as const,
  failures: ["agents", "failures"] as const,
  timeline: (id: string) => ["agents", "timeline", id] as const,
  attention: ["attention"] as const,
  series: ["series"] as const,
  views: ["views"] as const,
  settings: ["settings"] as const,
  trails: ["audit"] as const,
  trust: ["trust"] as const,
  webhooks: ["webhooks"] as const,
  deadLetters: ["dead-letters"] as const,
  /** Of every rollout: their hosts change with their agents. */
  allTargets: ["rollouts", "targets"] as const,
  allGrids: ["rollouts", "grid"] as const,
  grid: (id: string) => ["rollouts", "grid", id] as const,
  eachAgent: ["agents", "one"] as const,
  agent: (id: string) => ["agents", "one", id] as const,
  suggestions: ["suggestions"] as const,
  actions: ["actions"] as const,
  versions: ["versions"] as const,
  packages: ["packages"] as const,
  publisherKeys: ["publisher-keys"] as const,
  enrollmentKeys: ["enrollment-keys"] as const,
  adminKeys: ["admin-keys"] as const,
  policies: ["policies"] as const,
  components: ["components"] as const,
  preview: ["preview"] as const,
  rollouts: ["rollouts"] as const,
  rollout: (id: string) => ["rollouts", "one", id] as const,
  targets: (id: string) => ["rollouts", "targets", id] as const,
  /** A key of its own: a preview is read again only when the operator asks for it. */
  rolloutPreview: (id: string) => ["rollout-preview", id] as const,
  /** Below that of its preview, with whose hash it changes. */
  previewConfig: (id: string, hash: string, agentId: string) => ["rollout-preview", id, "config", hash, agentId] as const,
  groups: ["groups"] as const,
  group: (id: string) => ["groups", "one", id] as const,
  /** As rolloutPreview. */
  groupPreview: (id: string) => ["group-preview", id] as const,
  fleets: ["fleets"] as const,
  fleet: (name: string) => ["fleets", "one", name] as const,
  fleetHistory: (name: string) => ["fleets", "history", name] as const,
  fleetCommands: (name: string) => ["fleets", "commands", name] as const,
  why: ["why"] as const,
  incidents: ["incidents"] as const,
  exposure: ["exposure"] as const,
  freezes: ["freezes"] as const,
};

export const sessionQuery = queryOptions({
  queryKey: keys.session,
  queryFn: ({ signal }) => call("get", "/api/v1/session", { signal }),
  staleTime: POLL_MS,
});

export const serverQuery = queryOptions({
  queryKey: keys.server,
  queryFn: ({ signal }) => call("get", "/api/v1/server", { signal }),
});

export const serversQuery = queryOptions({
  queryKey: keys.servers,
  queryFn: ({ signal }) => call("get", "/api/v1/servers", { signal }),
  refetchInterval: POLL_MS,
});

/** The key has text and cursor, so an older answer cannot replace a newer one. */
export const suggestionsQuery = (q: string, cursor: number) =>
  queryOptions({
    queryKey: [...keys.suggestions, q, cursor] as const,
    queryFn: async ({ signal }) => (await call("get", "/api/v1/kql/suggest", { query: { q, cursor }, signal })).items,
    gcTime: 60_000,
    retry: false,
  });

export const agentQuery = (id: string) =>
  queryOptions({
    queryKey: keys.agent(id),
    queryFn: async ({ signal }) => (await call("get", "/api/fleet/agents/{agentId}", { path: { agentId: id }, signal })).item,
    refetchInterval: POLL_MS,
  });

export const versionsQuery = queryOptions({
  queryKey: keys.versions,
  queryFn: async ({ signal }) => (await call("get", "/api/fleet/agents/available_versions", { signal })).items,
});

export const packagesQuery = queryOptions({
  queryKey: keys.packages,
  queryFn: async ({ signal }) => (await call("get", "/api/v1/packages", { signal })).items,
});

export const publisherKeysQuery = queryOptions({
  queryKey: keys.publisherKeys,
  queryFn: async ({ signal }) => (await call("get", "/api/v1/publisher_keys", { signal })).items,
});

export const policiesQuery = queryOptions({
  queryKey: keys.policies,
  queryFn: async ({ signal }) => (await call("get", "/api/fleet/agent_policies", { query: { perPage: 1000, noAgentCount: true }, signal })).items,
});

export const componentsQuery = queryOptions({
  queryKey: keys.components,
  queryFn: async ({ signal }) => (await call("get", "/api/v1/components", { signal })).items,
  refetchInterval: POLL_MS,
});

export const rollbackPreviewQuery = (selection: Selection & { forward?: true; max_items?: number }) =>
  queryOptions({
    queryKey: [...keys.preview, "rollback", selection] as const,
    queryFn: ({ signal }) => call("post", "/api/v1/rollback_preview", { body: selection, signal }),
    staleTime: 0,
    gcTime: 60_000,
    retry: false,
  });

export const unenrollPreviewQuery = (input: Selection & { revoke: boolean; force: boolean; max_items?: number }) =>
  queryOptions({
    queryKey: [...keys.preview, "unenroll", input] as const,
    queryFn: ({ signal }) => call("post", "/api/v1/unenroll_preview", { body: input, signal }),
    staleTime: 0,
    gcTime: 60_000,
    retry: false,
  });

export interface PreviewInput extends Selection {
  version: string;
  source_uri?: string;
  force: boolean;
  /** Only of a component: go back to a version that the hosts have kept. */
  rollback?: boolean;
  start_time?: string;
  rollout_duration_seconds?: number;
  override_freeze?: boolean;
  override_exposure?: boolean;
  /** The fleet whose agents the order takes over. */
  take_over?: string;
  /** Of a component of the agents, instead of the agents themselves. */
  component?: string;
  /** Only stage the version. */
  stage?: boolean;
  /** The most hosts that the answer names. */
  max_items?: number;
}

export const previewQuery = (input: PreviewInput) =>
  queryOptions({
    queryKey: [...keys.preview, input] as const,
    queryFn: ({ signal }) => {
      const { component, stage, ...body } = input;
      if (stage) {
        const { agents, includeInactive, version, source_uri, force, max_items } = body;
        return call("post", "/api/v1/stage_preview", { body: { agents, includeInactive, component, version, source_uri, force, max_items }, signal });
      }
      return component
        ? call("post", "/api/v1/components/{name}/upgrade_preview", { path: { name: component }, body, signal })
        : call("post", "/api/v1/upgrade_preview", { body, signal });
    },
    enabled: input.version !== "" && input.agents.length > 0,
    staleTime: 0,
    gcTime: 60_000,
    retry: false,
  });

/** How many of the newest rollouts the rollouts page shows. */
export const ROLLOUTS_SHOWN = 200;

export const rolloutsQuery = queryOptions({
  queryKey: [...keys.rollouts, "list"] as const,
  queryFn: ({ signal }) => call("get", "/api/v1/rollouts", { query: { page: 1, perPage: ROLLOUTS_SHOWN }, signal }),
  refetchInterval: POLL_MS,
});

export const rolloutQuery = (id: string) =>
  queryOptions({
    queryKey: keys.rollout(id),
    queryFn: async ({ signal }) => (await call("get", "/api/v1/rollouts/{rolloutId}", { path: { rolloutId: id }, signal })).item,
    refetchInterval: POLL_MS,
  });

/** The newest entries of an audit trail; the command line shows older ones. */
export const AUDIT_SHOWN = 100;

/** The audit trail of anything that has an id. */
export const subjectAuditQuery = (subject: string) =>
  queryOptions({
    queryKey: [...keys.groups, "audit", subject] as const,
    queryFn: ({ signal }) => call("get", "/api/v1/audit", { query: { subject, page: 1, perPage: AUDIT_SHOWN }, signal }),
    refetchInterval: POLL_MS,
  });

export const GROUPS_PER_PAGE = 50;

export const groupsQuery = (page: number) =>
  queryOptions({
    queryKey: [...keys.groups, "list", page] as const,
    queryFn: ({ signal }) => call("get", "/api/v1/rollout-groups", { query: { page, perPage: GROUPS_PER_PAGE }, signal }),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
  });

export const groupQuery = (id: string) =>
  queryOptions({
    queryKey: keys.group(id),
    queryFn: async ({ signal }) => (await call("get", "/api/v1/rollout-groups/{groupId}", { path: { groupId: id }, signal })).item,
    refetchInterval: POLL_MS,
  });

/** Two screens of the fleets page. The server pages. */
export const FLEETS_PER_PAGE = 50;

export const fleetsQuery = (page: number, labelSelector?: string) =>
  queryOptions({
    queryKey: [...keys.fleets, "list", { page, labelSelector }] as const,
    queryFn: ({ signal }) => call("get", "/api/v1/fleets", { query: { offset: (page - 1) * FLEETS_PER_PAGE, limit: FLEETS_PER_PAGE, labelSelector }, signal }),
    placeholderData: keepPreviousData,
    refetchInterval: POLL_MS,
  });

export const fleetQuery = (name: string) =>
  queryOptions({
    queryKey: keys.fleet(name),
    queryFn: ({ signal }) => call("get", "/api/v1/fleets/{name}", { path: { name }, signal }),
    refetchInterval: POLL_MS,
  });

/** What can be ordered for a fleet now. Changes of the fleet and of its rollout change it. */
export const fleetCommandsQuery = (name: string) =>
  queryOptions({
    queryKey: keys.fleetCommands(name),
    queryFn: async ({ signal }) => (await call("get", "/api/v1/fleets/{name}/commands", { path: { name }, signal })).items,
    refetchInterval: POLL_MS,
  });

/** The newest changes of a fleet; `muster fleets history` shows older ones. */
export const HISTORY_SHOWN = 50;

export const fleetHistoryQuery = (name: string) =>
  queryOptions({
    queryKey: keys.fleetHistory(name),
    queryFn: ({ signal }) => call("get", "/api/v1/fleets/{name}/history", { path: { name }, query: { limit: HISTORY_SHOWN }, signal }),
    refetchInterval: POLL_MS,
  });

export const groupPreviewQuery = (id: string) =>
  queryOptions({
    queryKey: keys.groupPreview(id),
    queryFn: async ({ signal }) => (await call("post", "/api/v1/rollout-groups/{groupId}/preview", { path: { groupId: id }, signal })).item,
    staleTime: Infinity,
    gcTime: 60_000,
    retry: false,
    refetchOnWindowFocus: false,
    refetchOnReconnect: false,
  });

/** A preview of a draft has at most this many of its hosts by name; its numbers are those of all. */
export const PREVIEW_SHOWN = 500;

/** Previews a draft. No event makes the preview stale: what is started is what was previewed. */
export const rolloutPreviewQuery = (id: string) =>
  queryOptions({
    queryKey: keys.rolloutPreview(id),
    queryFn: async ({ signal }) =>
      (await call("post", "/api/v1/rollouts/{rolloutId}/preview", { path: { rolloutId: id }, query: { max_items: PREVIEW_SHOWN }, signal })).item,
    staleTime: Infinity,
    gcTime: 60_000,
    retry: false,
    refetchOnWindowFocus: false,
    refetchOnReconnect: false,
  });

/** What a preview changes in the configuration files of one of its targets. */
export const previewConfigQuery = (id: string, hash: string, agentId: string) =>
  queryOptions({
    queryKey: keys.previewConfig(id, hash, agentId),
    queryFn: async ({ signal }) =>
      (await call("get", "/api/v1/rollouts/{rolloutId}/previews/{hash}/configs", { path: { rolloutId: id, hash }, query: { agent: [agentId] }, signal }))
        .items[0]!,
    staleTime: POLL_MS,
    gcTime: 60_000,
    retry: false,
  });

export const whyQuery = (agentId: string, at?: string, component?: string) =>
  queryOptions({
    queryKey: [...keys.why, agentId, at ?? "now", component ?? ""] as const,
    queryFn: async ({ signal }) => (await call("get", "/api/v1/agents/{agentId}/why", { path: { agentId }, query: { at, component }, signal })).item,
    placeholderData: keepPreviousData,
    refetchInterval: at ? false : POLL_MS,
  });

export const exposureQuery = queryOptions({
  queryKey: keys.exposure,
  queryFn: async ({ signal }) => (await call("get", "/api/v1/exposure", { signal })).item,
});

export const freezesQuery = queryOptions({
  queryKey: keys.freezes,
  queryFn: async ({ signal }) => (await call("get", "/api/v1/freezes", { signal })).items,
});
