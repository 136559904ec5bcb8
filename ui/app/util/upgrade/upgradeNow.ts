/** The upgrade of an agent that is under way or has ended badly, as its page shows it. */
import type { Agent, Progress, TimelineEntry, Watch } from "~/api/types";
import { isOver } from "~/util/state";
import { relative } from "~/util/time";
import { closed } from "~/util/words";

/** upgradeToShow returns the progress that the page shows on its own; a committed one is only in the timeline. */
export function upgradeToShow(a: Pick<Agent, "progress">): Progress | undefined {
  return a.progress && a.progress.state !== "committed" ? a.progress : undefined;
}

/** entryOf returns the entry of the timeline that the progress is about. */
export function entryOf(p: Progress, entries: readonly TimelineEntry[]): TimelineEntry | undefined {
  return entries.find(
    (e) => !e.component && (e.kind === "upgrade" || e.kind === "rollback") && e.to === p.version && (!e.state || isOver(e.state) === isOver(p.state)),
  );
}

/** The upgrade in a few words. */
export function upgradeTitle(p: Progress): string {
  const noun = p.rollback ? "Rollback" : "Upgrade";
  if (p.state === "rolled_back") return `Rolled back from ${p.version}${p.from ? ` to ${p.from}` : ""}`;
  return p.state === "failed" ? `${noun} to ${p.version} failed` : `${noun}${p.from ? ` from ${p.from}` : ""} to ${p.version}`;
}

/** What the upgrade waits for, or what happens now, as sentences. */
export function upgradeText(p: Progress, a: Pick<Agent, "last_checkin" | "watch">, now: number): string {
  const verb = p.rollback ? "rollback" : "upgrade";
  switch (p.state) {
    case "scheduled":
      return p.until ? closed(`It begins ${relative(p.until, now)}`) : `The ${verb} is scheduled.`;
    case "waiting_for_host":
      return `The ${verb} waits for the host, which checked in last ${relative(a.last_checkin, now)}. It goes on when the host is back.`;
    case "sent":
      return "The order waits for the agent's next check-in.";
    case "accepted":
      return "The agent has the order, and begins soon.";
    case "downloading":
      return "The host downloads the package.";
    case "installing":
      return "The host installs the new version beside the one that runs.";
    case "restarting":
      return "The agent restarts with the new version.";
    case "watching":
      return watchText(p, a.watch);
    default:
      return "";
  }
}

function watchText(p: Progress, w: Watch | undefined): string {
  if (w?.stage === "rolling_back") return `The host's watcher puts ${w.from} back.`;
  const waits = w?.waiting ? ` It waits for ${w.waiting}.` : "";
  return `The host runs ${p.version}, and its watcher decides whether it stays: for ten minutes by default it can still go back by itself.${waits}`;
}
