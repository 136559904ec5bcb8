/** What a host's watcher says, in words. */
import type { Watch } from "~/api/types";
import { plural } from "./words";

type Code = NonNullable<Watch["diagnosis"]>["code"];

const titles: Record<Code, string> = {
  agent_down: "The host is there, the agent is not",
  agent_cut_off: "The agent runs, but does not reach this server",
  no_sign: "No sign from the host",
  rolled_back: "Rolled back, and silent since",
  rollback_failed: "The host could not go back",
};

export function diagnosisTitle(code: Code): string {
  return titles[code] ?? code;
}

export function watchedAgentText(watch: Watch): string {
  const a = watch.agent;
  const words = !a.alive ? "not running" : a.state ? `running, ${a.state}` : "running, but it does not answer";
  return a.crashes > 0 ? `${words}; ended ${plural(a.crashes, "time")}` : words;
}
