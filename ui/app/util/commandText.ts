/** The texts of each command on a rollout. */
import type { Rollout } from "~/api/types";
import { inFlightWords, putBackOf, type Command } from "./rollout";
import { badOf } from "./rolloutCounts";
import { plural } from "./words";

export interface CommandText {
  title: string;
  /** A verb and its object. */
  confirm: string;
  /** What the command does. */
  text: string;
  done: string;
  harmless: boolean;
}

export function commandText(command: Command, r: Rollout): CommandText {
  const name = `“${r.plan.name}”`;
  const failed = badOf(r.counts);
  const stuck = r.counts.failed; // watchers have rolled back others
  switch (command) {
    case "start":
      return { title: `Start ${name}?`, confirm: "Start rollout", text: "", done: `${name} is under way`, harmless: true };
    case "pause":
      return { title: `Pause ${name}?`, confirm: "Pause after this batch", text: "The current batch continues to its end; the next one does not start.", done: `${name} pauses after its current batch`, harmless: true };
    case "pause_now":
      return { title: `Pause ${name}?`, confirm: "Pause at once", text: `Nothing more is offered. ${inFlightWords(r)}`, done: `${name} is paused`, harmless: false };
    case "resume":
      if (r.state === "running") return { title: `Withdraw the pause of ${name}?`, confirm: "Continue without a pause", text: "It continues with the next batch when the current one has ended.", done: `${name} continues`, harmless: true };
      return { title: `Resume ${name}?`, confirm: "Resume rollout", text: resumeWords(r), done: `${name} resumed`, harmless: true };
    case "force":
      return {
        title: `Force ${name}?`, confirm: "Ignore failures",
        text: `It continues, and failures no longer pause it. The exposure limit, windows and limits still apply.`,
        done: `${name} continues and ignores failures`, harmless: false,
      };
    case "approve":
      return { title: `Approve ${name}?`, confirm: "Approve the rest", text: `The ${plural(r.counts.pending + r.counts.held, "target")} after the canaries can be upgraded.`, done: `${name} is approved`, harmless: true };
    case "cancel":
      return { title: `Cancel ${name}?`, confirm: "Cancel rollout", text: `Nothing more is offered. ${inFlightWords(r)} Upgraded agents stay upgraded; roll back to undo that.`, done: `${name} is being cancelled`, harmless: false };
    case "retry":
      return {
        title: "Retry all failed targets?", confirm: `Retry ${plural(failed, "target")}`,
        text: `${plural(failed, "failed target")} ${failed === 1 ? "is" : "are"} offered the version again${r.state === "paused" ? " when the rollout is resumed" : ""}. Withdrawn and expired targets are not included.`,
        done: `Retrying ${plural(failed, "target")}`, harmless: true,
      };
    case "rollback_failed":
      return { title: `Roll back ${name}?`, confirm: "Roll back failed targets", text: `${plural(stuck, "failed target")} ${stuck === 1 ? "goes" : "go"} back to ${stuck === 1 ? "its" : "their"} last healthy version.${already(r)}`, done: `Rolling back the failed targets of ${name}`, harmless: false };
    case "rollback_all": {
      const n = putBackOf(r);
      return { title: `Roll back ${name}?`, confirm: "Roll back all", text: `${plural(n, "target")} that failed, ${n === 1 ? "was upgraded or is" : "were upgraded or are"} under way ${n === 1 ? "goes" : "go"} back to ${n === 1 ? "its" : "their"} last healthy version.${already(r)}`, done: `Rolling back all of ${name}`, harmless: false };
    }
    case "delete":
      return { title: `Delete ${name}?`, confirm: "Delete draft", text: "The plan and its previews are deleted. Agents are not affected.", done: `${name} was deleted`, harmless: false };
  }
}

/** Names the targets that are not rolled back again. */
function already(r: Rollout): string {
  const n = r.counts.rolled_back;
  return n > 0 ? ` ${plural(n, "target")} ${n === 1 ? "was rolled back by its watcher" : "were rolled back by their watchers"} already.` : "";
}

function resumeWords(r: Rollout): string {
  const failed = badOf(r.counts) - (r.forgiven ?? 0);
  switch (r.stop?.kind) {
    case "threshold":
    case "canary":
      return `It continues with the remaining hosts and the same version. The ${plural(failed, "failure")} so far no longer ${failed === 1 ? "counts" : "count"}; further ones pause it again.`;
    case "exposure":
      return "It continues. If the exposure limit still applies, it pauses again.";
    case "rollback":
      return "It continues with the version that is being rolled back. That is refused while its rollback is running.";
    case "deadline":
      return "It continues, and waits again for what took too long.";
    default:
      return "It continues where it paused.";
  }
}
