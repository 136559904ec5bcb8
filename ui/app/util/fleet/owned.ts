/** Orders on agents that belong to a fleet: the server refuses them, unless they take the agents over. */
import { ApiError } from "~/api/client";
import type { PreviewCause } from "~/api/types";

/** isOwned reports whether an order was refused because its agents belong to a fleet, which the message names. */
export function isOwned(error: unknown): error is ApiError {
  return error instanceof ApiError && error.statusCode === 409 && (error.body as { code?: unknown } | undefined)?.code === "fleet_owned";
}

/** showsOwned reports whether a preview has agents that belong to a fleet. */
export const showsOwned = (preview: { causes?: PreviewCause[] } | undefined): boolean => preview?.causes?.some((c) => c.choice === "take_over") ?? false;

/** whyNotTakeOver returns null if an order may be sent; typed is the name of the fleet, and owned that a preview shows its agents. */
export const whyNotTakeOver = (error: unknown, typed: string, owned = false): string | null =>
  (owned || isOwned(error)) && typed.trim() === "" ? "Type the name of the fleet to take its agents over." : null;

/** takeOverOf returns what an order sends. */
export const takeOverOf = (typed: string): string | undefined => typed.trim() || undefined;
