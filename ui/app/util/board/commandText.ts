/** The words of each command on a rollout. The server says which of them are possible, and why the others are not. */
import type { Command, Rollout } from "~/api/types";
import { badOf, refusedOf } from "~/util/rollout/rolloutCounts";
import { plural } from "~/util/words";

/** In buttons and menus. A command without words is not shown: single hosts are retried in the table of hosts. */
export const commandLabel: Record<string, string> = {
  approve: "Approve…",
  resume: "Resume…",
  pause: "Pause…",
  pause_now: "Pause at once…",
  retry: "Retry failed hosts…",
  skip: "Skip failed hosts…",
  adjust: "Adjust limits…",
  promote: "Promote…",
  force: "Force…",
  rollback_failed: "Roll back failed hosts…",
  rollback_all: "Roll back all hosts…",
  cancel: "Cancel rollout…",
  cancel_now: "Cancel at once…",
  delete: "Delete draft…",
};

/** boardCommands returns the commands that the board offers. A draft is only started or deleted, which nothing else can be. */
export function boardCommands(r: Rollout): Command[] {
  const ofDraft = (c: Command) => c.name === "start" || c.name === "delete";
  return (r.commands ?? [])
    .filter((c) => ofDraft(c) === (r.state === "draft"))
    .map((c) =>
      c.name === "skip" && c.allowed && badOf(r.counts) === 0
        ? { ...c, allowed: false, reason: "No host has failed. Skip one of the others in the table of hosts." }
        : c,
    );
}

export interface CommandText {
  /** The question. */
  title: string;
  /** A verb and its object. */
  confirm: string;
  /** What the command does, besides the warning of the server. */
  text: string;
  /** The message afterwards. */
  done: string;
  /** What is typed first: it names what happens to how many. */
  typed?: string;
}

export function commandText(command: string, r: Rollout): CommandText {
  const name = `“${r.plan.name}”`;
  const failed = plural(badOf(r.counts), "host");
  const again = plural(badOf(r.counts) + refusedOf(r.counts), "host");
  const ahead = plural(aheadOf(r), "host");
  switch (command) {
    case "approve":
      return {
        title: `Approve ${ahead} after the canaries?`,
        confirm: `Approve ${ahead}`,
        text: "The batches after the canaries can be upgraded.",
        done: `${name} is approved`,
      };
    case "pause": {
      const batch = `batch ${batchNow(r)}`;
      return {
        title: `Pause ${name} after ${batch}?`,
        confirm: `Pause after ${batch}`,
        text: `${capital(batch)} continues to its end; the next one does not start.`,
        done: `${name} pauses after ${batch}`,
      };
    }
    case "pause_now":
      return {
        title: `Pause ${name} at once?`,
        confirm: "Pause at once",
        text: `No more hosts are asked to upgrade. ${inFlightWords(r)}`,
        done: `${name} is paused`,
      };
    case "resume":
      return r.state === "running"
        ? {
            title: `Continue ${name} without a pause?`,
            confirm: "Withdraw the pause",
            text: "The next batch starts when the current one has ended.",
            done: `${name} continues`,
          }
        : {
            title: `Resume ${name}?`,
            confirm: "Resume rollout",
            text: `${capital(ahead)} ${aheadOf(r) === 1 ? "has" : "have"} not been upgraded yet.`,
            done: `${name} continues`,
          };
    case "promote":
      return {
        title: `Promote ${name} to ${ahead}?`,
        confirm: `Promote to ${ahead}`,
        text: "The batches that are left begin as soon as the limits allow.",
        done: `${name} is promoted`,
        typed: `promote to ${ahead}`,
      };
    case "force":
      return {
        title: `Force ${name} on ${ahead}?`,
        confirm: `Force ${ahead}`,
        text: "It continues, whatever fails.",
        done: `${name} continues and ignores failures`,
        typed: `force ${ahead}`,
      };
    case "adjust":
      return {
        title: `Adjust the limits of ${name}?`,
        confirm: "Adjust limits",
        text: "It takes effect at once, also for hosts under way. A rollout that is paused stays paused.",
        done: `The limits of ${name} are adjusted`,
      };
    case "cancel":
      return {
        title: `Cancel ${name}?`,
        confirm: "Cancel rollout",
        text: `${capital(ahead)} ${aheadOf(r) === 1 ? "keeps its" : "keep their"} version. ${inFlightWords(r)}`,
        done: `${name} is being cancelled`,
      };
    case "cancel_now":
      return {
        title: `Cancel ${name} at once?`,
        confirm: "Cancel at once",
        text: `${aheadOf(r) === 0 ? "" : `${capital(ahead)} ${aheadOf(r) === 1 ? "keeps its" : "keep their"} version. `}${letGoWords(r)}`,
        done: `${name} is being cancelled, and lets go of its hosts`,
      };
    case "retry":
      return {
        title: `Retry ${again}?`,
        confirm: `Retry ${again}`,
        text: `All hosts that failed, were rolled back or could not be given the version get it again${r.state === "paused" ? " when the rollout is resumed" : ""}.`,
        done: `Retrying ${again}`,
      };
    case "skip":
      return {
        title: `Skip ${failed}?`,
        confirm: `Skip ${failed}`,
        text: "This rollout leaves the hosts that failed or were rolled back as they are, and does not count them any more.",
        done: `Skipped ${failed}`,
      };
    case "rollback_failed": {
      const back = plural(r.counts.failed, "host");
      return {
        title: `Roll back ${back}?`,
        confirm: `Roll back ${back}`,
        text: "The hosts that failed go back to their last healthy version, with a rollout that starts at once.",
        done: `Rolling back ${back}`,
        typed: `roll back ${back}`,
      };
    }
    case "rollback_all": {
      const back = plural(putBackOf(r), "host");
      return {
        title: `Roll back ${back}?`,
        confirm: `Roll back ${back}`,
        text: "All hosts that run the version or are about to go back to their last healthy version, with a rollout that starts at once.",
        done: `Rolling back ${back}`,
        typed: `roll back ${back}`,
      };
    }
    case "delete":
      return {
        title: `Delete the draft ${name}?`,
        confirm: "Delete draft",
        text: "The plan and its previews are deleted. No host changes.",
        done: `${name} was deleted`,
      };
  }
  return { title: `${capital(command.replaceAll("_", " "))} ${name}?`, confirm: capital(command.replaceAll("_", " ")), text: "", done: name };
}

/** How many hosts the rollout has not asked to upgrade yet. */
const aheadOf = (r: Rollout) => r.counts.pending + r.counts.held;

/** How many hosts a rollback of all changes: those under way are included, those that their watchers rolled back are not. */
export const putBackOf = (r: Rollout) => r.counts.failed + r.counts.succeeded + r.counts.verifying + r.counts.upgrading;

/** The number of the batch that is under way, or whose soak and approval are. */
export function batchNow(r: Rollout): number {
  const batches = r.batches ?? [];
  const at = batches.findIndex((b) => !b.cleared_at);
  return at < 0 ? batches.length : at + 1;
}

/** What happens to hosts under way when nothing more is ordered. */
export function inFlightWords(r: Rollout): string {
  const on = underWayOf(r);
  return `${withdrawnWords(r)}${on === 0 ? "No upgrade is under way." : `${plural(on, "upgrade")} under way still ${on === 1 ? "ends" : "end"}.`}`;
}

/** What happens to hosts under way when the rollout lets go of them. */
export function letGoWords(r: Rollout): string {
  const on = underWayOf(r);
  return `${withdrawnWords(r)}${on === 0 ? "No upgrade is under way." : `It does not wait for the ${plural(on, "host")} under way, and will not say how ${on === 1 ? "its upgrade ends" : "their upgrades end"}.`}`;
}

const underWayOf = (r: Rollout) => r.counts.upgrading + r.counts.verifying;

const withdrawnWords = (r: Rollout) =>
  r.counts.offered === 0 ? "" : `${plural(r.counts.offered, "order")} that no host has begun ${r.counts.offered === 1 ? "is" : "are"} withdrawn. `;

const capital = (text: string) => text.slice(0, 1).toUpperCase() + text.slice(1);
