/** The texts and the order of incidents. */
import type { Incident } from "~/api/types";

export const incidentKind: Record<Incident["category"], string> = {
  upgrade_failed: "Upgrade and rollback failed",
  upgrade_rollback_failed: "Rollback failed",
  upgrade_stalled: "Running, but not healthy",
  rollout_stopped: "Rollout stopped",
  version_rolled_back: "Version rolled back",
};

export const incidentLabel: Record<Incident["state"], string> = { open: "Open", acknowledged: "Acknowledged", resolved: "Resolved" };

const order: Record<Incident["state"], number> = { open: 0, acknowledged: 1, resolved: 2 };

/** Open ones first, critical before warning, then the newest first. */
export function sortIncidents(list: readonly Incident[]): Incident[] {
  return [...list].sort((a, b) =>
    order[a.state] - order[b.state] ||
    Number(b.severity === "critical") - Number(a.severity === "critical") ||
    Date.parse(b.opened_at) - Date.parse(a.opened_at));
}

export function whyNotAck(i: Incident): string | null {
  if (i.state === "resolved") return "It is resolved.";
  return i.state === "acknowledged" ? `${i.acked?.by ?? "Somebody"} has acknowledged it already.` : null;
}

export function whyNotResolve(i: Incident): string | null {
  return i.state === "resolved" ? "It is resolved already." : null;
}
