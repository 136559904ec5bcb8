/** Where each thing that waits for a person is dealt with. */
import type { AttentionItem } from "~/api/types";
import type { Tone } from "~/util/state";

export interface Place {
  to: string;
  params?: Record<string, string>;
  search?: Record<string, unknown>;
  /** A verb and its object. */
  verb: string;
}

const FAILED = { progress: ["failed", "rolled_back"] };

export function placeOf(item: AttentionItem): Place {
  const subject = item.subject ?? "";
  switch (item.kind) {
    case "approval":
      return { to: "/rollouts/$rolloutId", params: { rolloutId: subject }, verb: "Review" };
    case "paused":
      return { to: "/rollouts/$rolloutId", params: { rolloutId: subject }, verb: "Open rollout" };
    case "incident":
      return { to: "/incidents", verb: "Open incidents" };
    case "failures":
      return { to: "/agents", search: FAILED, verb: "Show hosts" };
    case "upgrade":
      return { to: "/agents", search: { progress: ["waiting_for_host"] }, verb: "Show hosts" };
    case "suspended":
    case "stalled":
    case "degraded":
      return { to: "/fleets/$name", params: { name: subject }, verb: "Open fleet" };
    case "trust":
      return { to: "/trust", verb: "Open trust" };
    case "key":
      return { to: "/admin-keys", verb: "Open keys" };
    case "dead_letters":
      return { to: "/webhooks", verb: "Open webhooks" };
    default:
      return { to: "/servers", verb: "Open servers" };
  }
}

export const severityTone: Record<AttentionItem["severity"], Tone> = { critical: "bad", warning: "wait", info: "away" };
export const severityWord: Record<AttentionItem["severity"], string> = { critical: "Critical", warning: "Warning", info: "Note" };
