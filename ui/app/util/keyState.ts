import type { AdminKey, EnrollmentKey } from "~/api/types";

export function keyState(key: EnrollmentKey | AdminKey, now: number): "Active" | "Revoked" | "Expired" {
  if (!key.active) return "Revoked";
  return key.expire_at && Date.parse(key.expire_at) <= now ? "Expired" : "Active";
}
