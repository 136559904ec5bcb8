/** The texts, the order and the search of incidents. */
import type { Incident, ResolvedIncidents } from "~/api/types";
import { withoutIds } from "~/util/prose";
import { compact, pageOf } from "~/util/searchParts";
import type { Tone } from "~/util/state";
import { plural, sentence } from "~/util/words";

export const incidentKind: Record<Incident["category"], string> = {
  upgrade_failed: "Upgrade and rollback failed",
  upgrade_rollback_failed: "Rollback failed",
  upgrade_stalled: "Running, but not healthy",
  rollout_stopped: "Rollout stopped",
  version_rolled_back: "Version rolled back",
  shared_identity: "Several hosts, one identity",
};

export const INCIDENT_STATES: readonly Incident["state"][] = ["open", "acknowledged", "resolved"];

export const incidentWord: Record<Incident["state"], string> = { open: "Open", acknowledged: "Acknowledged", resolved: "Resolved" };

export const severityLook = (i: Pick<Incident, "severity">): { word: string; tone: Tone } =>
  i.severity === "critical" ? { word: "Critical", tone: "bad" } : { word: "Warning", tone: "wait" };

/** Critical before warning, then the newest first. */
export const sortIncidents = (list: readonly Incident[]): Incident[] =>
  [...list].sort((a, b) => Number(b.severity === "critical") - Number(a.severity === "critical") || Date.parse(b.opened_at) - Date.parse(a.opened_at));

export const incidentTitle = (i: Pick<Incident, "title">): string => {
  const title = withoutIds(i.title);
  return title.startsWith("rollout ") ? `R${title.slice(1)}` : title;
};

export const incidentText = (i: Pick<Incident, "text">): string => sentence(withoutIds(i.text));

export type IncidentCommand = "ack" | "resolve";

/** The words of commands, without the dots of a dialog. */
export const incidentCommand: Record<IncidentCommand, string> = { ack: "Acknowledge", resolve: "Resolve" };

/** offered returns the commands that all of the incidents accept now. */
export const offered = (list: readonly Pick<Incident, "commands">[]): IncidentCommand[] =>
  (["ack", "resolve"] as const).filter((name) => list.every((i) => i.commands.some((c) => c.name === name && c.allowed)));

/** unresolvedText says which incidents were not resolved, and why; undefined if all are. Who resolved one earlier does not matter. */
export function unresolvedText({ resolved, incidents }: ResolvedIncidents): string | undefined {
  const left = incidents.filter((i) => i.result === "failed" || i.result === "not_found");
  if (left.length === 0) return undefined;
  const why = left.map((i) => `${i.title ? `${incidentTitle({ title: i.title })}: ` : ""}${sentence(i.text ?? "")}`);
  return `${plural(resolved, "incident")} ${resolved === 1 ? "is" : "are"} resolved, ${left.length.toLocaleString()} ${left.length === 1 ? "is" : "are"} not. ${why.join(" ")}`;
}

export interface IncidentsSearch {
  /** Absent: open ones. */
  state?: Exclude<Incident["state"], "open">;
  page?: number;
}

/** parseIncidentsSearch drops unknown values, so that old links still open. */
export const parseIncidentsSearch = (raw: Record<string, unknown>): IncidentsSearch =>
  compact({ state: raw.state === "resolved" || raw.state === "acknowledged" ? raw.state : undefined, page: pageOf(raw.page) });
