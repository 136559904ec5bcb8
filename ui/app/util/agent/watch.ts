/** The reports of a host's watcher, in words. */
import type { Watch } from "~/api/types";
import { plural } from "~/util/words";

type Code = NonNullable<Watch["diagnosis"]>["code"];

const titles: Record<Code, string> = {
  agent_down: "The host is online, but the agent is not",
  agent_cut_off: "The agent runs, but does not reach this server",
  no_sign: "The host is silent",
  rolled_back: "Rolled back, and silent since",
  rollback_failed: "The rollback failed",
};

export function diagnosisTitle(code: Code): string {
  return titles[code] ?? code;
}

export function watchedAgentText(watch: Watch): string {
  const a = watch.agent;
  const words = !a.alive ? "not running" : a.state ? `running, ${a.state}` : "running, but it does not answer";
  return a.crashes > 0 ? `${words}; crashed ${plural(a.crashes, "time")}` : words;
}
