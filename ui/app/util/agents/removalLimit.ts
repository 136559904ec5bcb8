/** Orders that take more hosts away within an hour than the server permits without a reason. */
import { ApiError } from "~/api/client";

/** What an order has that is meant in spite of the limit. */
export interface OverLimit {
  override_limit: true;
  why: string;
}

/** isOverLimit reports whether the server refused an order because of the limit. */
export const isOverLimit = (error: unknown): boolean => error instanceof ApiError && (error.body as { code?: unknown } | undefined)?.code === "removal_limit";

/** overLimitOf is the override with the operator's reason; without one the limit holds. */
export const overLimitOf = (why: string): OverLimit | undefined => (why === "" ? undefined : { override_limit: true, why });
