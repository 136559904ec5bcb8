/** The state of an agent's upgrade in words: (agent, now) → phase. */
import type { Agent, AgentComponent, UpgradeDetails, UpgradeState } from "~/api/types";
import { hourMinute, relative } from "./time";
import { sentence, size } from "./words";

export type Phase =
  | { kind: "none" }
  | { kind: "scheduled" | "running"; target: string; state?: UpgradeState; text: string; percent?: number; warning?: string }
  | { kind: "rolled_back" | "failed"; target: string; state?: UpgradeState; text: string; reason: string };

/** The phases of a successful upgrade, in order. SCHEDULED is a wait before them, not one of them. */
export const STEPS: readonly { state: UpgradeState; title: string; doing: string }[] = [
  { state: "UPG_REQUESTED", title: "Requested", doing: "Waiting for the agent to start the upgrade" },
  { state: "UPG_DOWNLOADING", title: "Download", doing: "Downloading" },
  { state: "UPG_EXTRACTING", title: "Unpack", doing: "Unpacking" },
  { state: "UPG_REPLACING", title: "Switch", doing: "Switching to the new version" },
  { state: "UPG_RESTARTING", title: "Restart", doing: "Restarting" },
  { state: "UPG_WATCHING", title: "Watch", doing: "Watching the new version" },
];

/** An upgrade without progress for this long may be stuck; Kibana's Fleet uses the same time. */
export const STUCK_AFTER_MS = 2 * 3_600_000;

/** How long an upgrade takes, for previews. */
export const WATCH_TEXT = "Hosts watch a new version for ten minutes by default; their upgrades are done after that.";

/** The same for a component. */
export const componentWatchText = (name: string): string => `Hosts observe ${name} for a minute by default, and put the earlier version back if it fails.`;

/** What phaseOf reads of an agent. */
type Upgraded = Pick<Agent, "status" | "upgrade_details" | "upgrade_status" | "upgrade_started_at" | "upgrade_rollback">;

/** What is done to a component, in the words of its agent. */
const componentDoing = {
  PREPARING: "Preparing", STOPPED: "Stopped", MUTATING: "Installing", STARTING: "Starting", VERIFYING: "Verifying that it is healthy",
} as const;

/** What is done, and how far it is. While a version is verified that changes each second, and nobody would read it. */
function componentDoingOf(meta: NonNullable<UpgradeDetails["metadata"]>): string | undefined {
  const doing: string | undefined = meta.phase && componentDoing[meta.phase]; // a later agent may have other phases
  return !doing || meta.phase === "VERIFYING" ? doing : colon(doing, meta.reason ?? "");
}

/**
 * The upgrade of one of the agent's components. The agent reports UPG_ROLLBACK while it undoes an
 * upgrade, and UPG_FAILED once that is over; the server then says whether it was rolled back.
 */
export function componentPhaseOf(agent: Agent, component: AgentComponent, now: number): Phase {
  const phase = phaseOf({
    status: agent.status, upgrade_details: component.upgrade_details ?? null,
    upgrade_status: component.upgrade_status ?? null, upgrade_started_at: component.upgrade_started_at ?? null,
  }, now);
  if (phase.kind === "rolled_back" && phase.state === "UPG_ROLLBACK") {
    return { kind: "running", target: phase.target, state: phase.state, text: "Rolling back", warning: phase.reason ? sentence(phase.reason) : undefined };
  }
  if (phase.kind === "failed" && component.upgrade_status === "rolled_back") {
    return { ...phase, kind: "rolled_back", text: colon("Rolled back", phase.reason) };
  }
  return phase;
}

export function phaseOf(agent: Upgraded, now: number): Phase {
  const details = agent.upgrade_details;
  if (details) {
    const target = details.target_version;
    const meta = details.metadata ?? {};
    switch (details.state) {
      case "UPG_ROLLBACK": {
        const reason = meta.reason || meta.error_msg || "";
        return { kind: "rolled_back", target, state: details.state, reason, text: colon("Rolled back", reason) };
      }
      case "UPG_FAILED": {
        const reason = meta.error_msg || meta.reason || "";
        return { kind: "failed", target, state: details.state, reason, text: colon(failedWords(meta.failed_state), reason) };
      }
      case "UPG_SCHEDULED":
        if (meta.retry_error_msg) {
          return { kind: "scheduled", target, state: details.state, text: nextTry(meta), warning: sentence(meta.retry_error_msg) };
        }
        return {
          kind: "scheduled", target, state: details.state,
          text: meta.scheduled_at ? `Starts ${relative(meta.scheduled_at, now)}` : "Scheduled",
        };
      case "UPG_DOWNLOADING":
        return {
          kind: "running", target, state: details.state,
          text: downloadText(meta.download_percent, meta.download_rate),
          percent: clampPercent(meta.download_percent),
          warning: meta.retry_error_msg ? retryText(meta.retry_error_msg, meta.retry_until, now) : stuck(agent, now),
        };
      default: {
        const step = STEPS.find((s) => s.state === details.state);
        return {
          // There is no progress before the agent starts.
          kind: details.state === "UPG_REQUESTED" ? "scheduled" : "running", target, state: details.state,
          text: agent.status === "offline" && details.state === "UPG_REQUESTED"
            ? "Upgrades when the agent returns"
            : componentDoingOf(meta) ?? step?.doing ?? `In phase ${details.state}`,
          warning: stuck(agent, now),
        };
      }
    }
  }
  // Without details: the agent does not report any, or has not answered yet.
  switch (agent.upgrade_status) {
    case "started":
      if (agent.upgrade_started_at && Date.parse(agent.upgrade_started_at) > now) {
        return { kind: "scheduled", target: "", text: `Starts ${relative(agent.upgrade_started_at, now)}` };
      }
      return { kind: "running", target: "", text: agent.upgrade_rollback ? "Rolling back" : "Upgrading", warning: stuck(agent, now) };
    case "failed":
      return { kind: "failed", target: "", text: "Upgrade failed", reason: "" };
    case "rolled_back":
      return { kind: "rolled_back", target: "", text: "Rolled back", reason: "" };
    default:
      return { kind: "none" };
  }
}

/** The version after a failed upgrade. The watcher may report before the older version has checked in. */
export function runsWords(agent: Agent, ended: { kind: "rolled_back" | "failed"; target: string }): string {
  return ended.kind === "rolled_back" && agent.agent.version === ended.target
    ? "The older version has not checked in yet."
    : `The host runs ${agent.agent.version}.`;
}

function stuck(agent: Upgraded, now: number): string | undefined {
  if (!agent.upgrade_started_at) return undefined;
  if (now - Date.parse(agent.upgrade_started_at) < STUCK_AFTER_MS) return undefined;
  return `Started ${relative(agent.upgrade_started_at, now)} and may be stuck. Upgrade again with force, or check the host.`;
}

function downloadText(percent?: number, rate?: number): string {
  const p = clampPercent(percent);
  if (p === undefined) return "Downloading";
  return `Downloading ${Math.floor(p)} %${rate && rate > 0 ? ` at ${size(rate)}/s` : ""}`;
}

function retryText(message: string, until: string | undefined, now: number): string {
  return `${sentence(message)} Retrying${until ? `, giving up ${relative(until, now)}` : ""}.`;
}

/** When an agent retries a failed upgrade, and which attempt of how many. */
function nextTry(meta: NonNullable<UpgradeDetails["metadata"]>): string {
  const which = meta.retry_attempt ? ` ${meta.retry_attempt}${meta.retry_limit ? ` of ${meta.retry_limit}` : ""}` : "";
  return `Retry${which}${meta.scheduled_at ? ` at ${hourMinute(meta.scheduled_at)}` : ""}`;
}

function clampPercent(percent?: number): number | undefined {
  return percent === undefined ? undefined : Math.min(100, Math.max(0, percent));
}

function colon(what: string, reason: string): string {
  return reason === "" ? what : `${what}: ${reason}`;
}

const failedWhile: Partial<Record<UpgradeState, string>> = {
  UPG_REQUESTED: "Failed before it started",
  UPG_SCHEDULED: "Failed before it started",
  UPG_DOWNLOADING: "Failed while downloading",
  UPG_EXTRACTING: "Failed while unpacking",
  UPG_REPLACING: "Failed while switching versions",
  UPG_RESTARTING: "Failed while restarting",
  UPG_WATCHING: "Failed while being watched",
  UPG_ROLLBACK: "Failed while rolling back",
};

function failedWords(state?: UpgradeState): string {
  return (state && failedWhile[state]) || "Upgrade failed";
}

/** What to do next, by the reason code of a watcher or an agent; see watcher/handoff. */
const advice: Record<string, string> = {
  crash_loop: "Check the agent's log on the host, fix the package and publish it under a new version.",
  agent_failed: "The new version started and then reported that it failed. Its log on the host has the cause.",
  component_failed: "A component did not become healthy under the new version. Check that component on the host, then upgrade again.",
  control_lost: "The new version ran but did not answer the watcher. Check the agent's log on the host.",
  wrong_version: "The package contains another version than its name says. Build and publish it again.",
  not_started: "The new version never ran. Check that the package is built for this host's system and architecture.",
  check_failed: "A check of the package did not pass. The reason names it.",
  checkin_lost: "The new version lost the connection to this server although the host still reached it. Check what the new version changes about the connection.",
  manual: "An operator rolled back to the previous version. Upgrade again once the cause is fixed.",
};

export function adviceFor(code: string | undefined): string {
  return (code && advice[code]) || "Upgrade again once the cause is fixed.";
}
