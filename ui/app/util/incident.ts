/** Incidents in words, in the order in which they need somebody. */
import type { Incident } from "~/api/types";

export const incidentKind: Record<Incident["category"], string> = {
  upgrade_failed: "Upgrade failed, and so did putting back",
  upgrade_rollback_failed: "Rollback failed",
  upgrade_stalled: "Alive, but not healthy",
};

export const incidentLabel: Record<Incident["state"], string> = { open: "Open", acknowledged: "Acknowledged", resolved: "Resolved" };

const order: Record<Incident["state"], number> = { open: 0, acknowledged: 1, resolved: 2 };

/** Open ones first, critical before warning, the newest of equals first. */
export function sortIncidents(list: readonly Incident[]): Incident[] {
  return [...list].sort((a, b) =>
    order[a.state] - order[b.state] ||
    Number(b.severity === "critical") - Number(a.severity === "critical") ||
    Date.parse(b.opened_at) - Date.parse(a.opened_at));
}

export function whyNotAck(i: Incident): string | null {
  if (i.state === "resolved") return "It is resolved.";
  return i.state === "acknowledged" ? `${i.acked?.by ?? "Somebody"} is at it already.` : null;
}

export function whyNotResolve(i: Incident): string | null {
  return i.state === "resolved" ? "It is resolved already." : null;
}
