/** The rules of the upgrade dialog: the values of its fields, and why its button is disabled. */
import type { UpgradePreview } from "~/api/types";
import { type Chosen, isMatching, selectionOf } from "~/util/agents/chosen";
import { isVersion } from "~/util/version";

export interface UpgradeForm {
  /** Where agents download the package from; empty means this server. */
  source: string;
  force: boolean;
  later: boolean;
  /** Install the version beside the one that runs, and do not switch to it. */
  stage: boolean;
  /** As in a datetime-local field: local time without a zone. */
  startAt: string;
  /** Seconds over which the starts are spread; 0 starts all at once. */
  rollout: number;
  /** Order it in spite of a freeze, or of the exposure budget; then a reason is required. */
  overrideFreeze: boolean;
  overrideExposure: boolean;
  /** Also hosts that count as inactive, of all that match a query. */
  inactive: boolean;
}

/** Above this many agents starts can be spread, and are by default: Kibana's threshold. */
export const ROLLOUT_FROM_AGENTS = 10;

/** The API requires at least 600 seconds. */
export const ROLLOUTS = [
  { seconds: 0, label: "All at once" },
  { seconds: 600, label: "10 minutes" },
  ...[1, 2, 4, 8, 12, 24, 48].map((h) => ({ seconds: h * 3600, label: h === 1 ? "1 hour" : `${h} hours` })),
];

export function defaultRollout(agents: number): number {
  return agents > ROLLOUT_FROM_AGENTS ? 3600 : 0;
}

/** localNow returns a time for a datetime-local field. */
export function localNow(ms: number): string {
  const d = new Date(ms);
  const two = (n: number) => String(n).padStart(2, "0");
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}T${two(d.getHours())}:${two(d.getMinutes())}`;
}

/** whyNotStart returns null if the button is enabled. */
export function whyNotStart(form: UpgradeForm, version: string, preview: UpgradePreview | undefined, previewError: unknown, now: number): string | null {
  if (version === "") return "Choose a version first.";
  if (!isVersion(version)) return `“${version}” is not a version. It has the form 1.2.3.`;
  if (form.later) {
    const at = Date.parse(form.startAt);
    if (Number.isNaN(at)) return "Choose a start time.";
    if (at <= now) return "The start time has passed.";
  }
  if (previewError) return "The preview could not be read.";
  if (!preview) return "The preview is being read.";
  if (preview.will === 0) return form.stage ? "None of these hosts would stage it." : "None of these hosts would be upgraded.";
  if (preview.refused)
    return preview.guard
      ? preview.guard === "exposure"
        ? "The exposure budget forbids it."
        : "A freeze forbids it."
      : "Type the name of the fleet to take its agents over.";
  return null;
}

/** overridesOf returns the guard rails that the form overrides, in the form of the API. */
export function overridesOf(form: Pick<UpgradeForm, "overrideFreeze" | "overrideExposure">): { override_freeze?: boolean; override_exposure?: boolean } {
  return { override_freeze: form.overrideFreeze || undefined, override_exposure: form.overrideExposure || undefined };
}

/** timesOf returns when the upgrades begin, in the form of the API. */
export function timesOf(form: Pick<UpgradeForm, "later" | "startAt" | "rollout">): When {
  const at = form.later ? new Date(form.startAt) : undefined;
  return {
    start_time: at && !Number.isNaN(at.getTime()) ? at.toISOString() : undefined,
    rollout_duration_seconds: form.rollout > 0 ? form.rollout : undefined,
  };
}

/**
 * questionOf returns what the preview asks. Of all matching agents it asks for no names: the counts
 * and causes are of all of them. Of named ones it does, since only those that would do it are ordered.
 */
export function questionOf(form: UpgradeForm, version: string, chosen: Chosen, component?: string, back = false) {
  const whom = selectionOf(chosen);
  return {
    ...whom,
    includeInactive: whom.includeInactive || form.inactive || undefined,
    component,
    version,
    force: form.force,
    rollback: back || undefined,
    source_uri: form.source.trim() || undefined,
    stage: form.stage || undefined,
    max_items: isMatching(chosen) ? 0 : undefined,
    ...timesOf(form),
    ...overridesOf(form),
  };
}

interface When {
  start_time?: string;
  rollout_duration_seconds?: number;
}
interface UpgradeBody {
  version: string;
  source_uri?: string;
  force: boolean;
  override_freeze?: boolean;
  override_exposure?: boolean;
  why?: string;
}

export type UpgradeCall =
  | { kind: "stage"; body: { agents: string[] | string; includeInactive: boolean; component?: string; version: string; source_uri?: string; force: boolean } }
  | { kind: "component"; component: string; body: UpgradeBody & When & { agents: string[] | string; includeInactive: boolean; rollback?: boolean } }
  | { kind: "one"; agentId: string; body: UpgradeBody }
  | {
      kind: "bulk";
      body: UpgradeBody & When & { agents: string[] | string; includeInactive: boolean };
    };

/**
 * planUpgrade turns a form and its preview into one request: it names only the agents that the
 * preview showed as upgraded. All matching agents are sent as their query, since they may be too
 * many to name; the server refuses those that cannot be upgraded, each with its reason. With a
 * component, that of the agents is upgraded instead of the agents themselves, or goes back to a
 * version that the hosts have kept. A form with stage becomes a request to stage the version.
 */
export function planUpgrade(form: UpgradeForm, preview: UpgradePreview, why: string, chosen: Chosen = [], component?: string, back = false): UpgradeCall {
  const matching = isMatching(chosen) ? chosen : null;
  const agents = preview.items.filter((i) => i.will).map((i) => i.agent_id);
  const common = {
    version: preview.version,
    source_uri: form.source.trim() || undefined,
    force: form.force,
    ...overridesOf(form),
    why: why || undefined,
  };
  const whom = { agents: matching ? matching.kuery : agents, includeInactive: matching ? matching.inactive || form.inactive : true };
  if (form.stage) return { kind: "stage", body: { ...whom, component, version: common.version, source_uri: common.source_uri, force: form.force } };
  const body = { ...whom, ...common, ...timesOf(form) };
  if (component) return { kind: "component", component, body: { ...body, rollback: back || undefined } };
  if (!matching && agents.length === 1 && !form.later) return { kind: "one", agentId: agents[0]!, body: common };
  return { kind: "bulk", body };
}
