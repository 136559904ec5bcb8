/** Whether a key still gives access. */
import type { AdminKey, EnrollmentKey } from "~/api/types";
import type { Tone } from "~/util/state";

export interface KeyState {
  word: "Active" | "Revoked" | "Expired";
  tone: Tone;
}

export function keyState(key: Pick<EnrollmentKey | AdminKey, "active" | "expire_at">, now: number): KeyState {
  if (!key.active) return { word: "Revoked", tone: "away" };
  return key.expire_at && Date.parse(key.expire_at) <= now ? { word: "Expired", tone: "away" } : { word: "Active", tone: "ok" };
}

/** How long keys of hosts live. They end, so that a forgotten key does not stay valid. */
export const HOST_LIFETIMES = [
  { value: "1h", label: "1 hour" },
  { value: "24h", label: "1 day" },
  { value: "7d", label: "1 week" },
  { value: "30d", label: "30 days" },
  { value: "", label: "Until it is revoked" },
];

export const ADMIN_LIFETIMES = [
  { value: "720h", label: "30 days" },
  { value: "2160h", label: "90 days" },
  { value: "8760h", label: "1 year" },
  { value: "", label: "Until it is revoked" },
];

/** How long a rotated key stays usable. */
export const GRACES = [
  { value: "", label: "Not at all" },
  { value: "1h", label: "1 hour" },
  { value: "24h", label: "1 day" },
  { value: "168h", label: "1 week" },
];
