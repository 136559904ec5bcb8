/** Which phases an upgrade has passed, derived from the phase it reports. */
import type { UpgradeDetails, UpgradeState } from "~/api/types";
import { STEPS } from "./phase";

export interface Step {
  state: UpgradeState;
  title: string;
  place: "done" | "now" | "failed" | "todo";
}

export function stepsOf(details: UpgradeDetails): Step[] {
  const at = indexOf(details);
  const ended = details.state === "UPG_FAILED" || details.state === "UPG_ROLLBACK";
  return STEPS.map(({ state, title }, i) => ({
    state, title,
    place: i < at ? "done" : i > at ? "todo" : ended ? "failed" : "now",
  }));
}

function indexOf(details: UpgradeDetails): number {
  const find = (state?: UpgradeState) => STEPS.findIndex((s) => s.state === state);
  switch (details.state) {
    case "UPG_SCHEDULED":
      return 0;
    case "UPG_ROLLBACK":
      // Only a watched version is rolled back.
      return find("UPG_WATCHING");
    case "UPG_FAILED":
      return Math.max(0, find(details.metadata?.failed_state));
    default:
      return Math.max(0, find(details.state));
  }
}
