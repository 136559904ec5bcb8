/** What each command on a rollout is called, asks and does. */
import type { Rollout } from "~/api/types";
import { inFlightWords, putBackOf, type Command } from "./rollout";
import { badOf } from "./rolloutCounts";
import { plural } from "./words";

export interface CommandText {
  title: string;
  /** A verb and its object. */
  confirm: string;
  /** What happens. */
  text: string;
  done: string;
  harmless: boolean;
}

export function commandText(command: Command, r: Rollout): CommandText {
  const name = `“${r.plan.name}”`;
  const failed = badOf(r.counts);
  const stuck = r.counts.failed; // others were put back by their watchers
  switch (command) {
    case "start":
      return { title: `Start ${name}?`, confirm: "Start rollout", text: "", done: `${name} is under way`, harmless: true };
    case "pause":
      return { title: `Pause ${name}?`, confirm: "Pause after this batch", text: "The current batch goes on to its end, with offers to those of it that wait; the next one does not begin.", done: `${name} pauses after its current batch`, harmless: true };
    case "pause_now":
      return { title: `Pause ${name}?`, confirm: "Pause at once", text: `Nothing more is offered. ${inFlightWords(r)}`, done: `${name} is paused`, harmless: false };
    case "resume":
      if (r.state === "running") return { title: `Take the pause of ${name} back?`, confirm: "Go on without a pause", text: "It goes on with the next batch when the current one has ended.", done: `${name} goes on`, harmless: true };
      return { title: `Resume ${name}?`, confirm: "Resume rollout", text: resumeWords(r), done: `${name} goes on`, harmless: true };
    case "force":
      return {
        title: `Force ${name}?`, confirm: "Go on whatever fails",
        text: `It goes on, and failures stop it no more for the rest of it. ${failed > 0 ? `The ${plural(failed, "failure")} so far ${failed === 1 ? "is" : "are"} forgiven. ` : ""}The exposure limit, windows and limits still hold.`,
        done: `${name} goes on, whatever fails`, harmless: false,
      };
    case "approve":
      return { title: `Approve ${name}?`, confirm: "Approve the rest", text: `The ${plural(r.counts.pending + r.counts.held, "target")} behind the canaries may follow.`, done: `${name} is approved`, harmless: true };
    case "cancel":
      return { title: `Cancel ${name}?`, confirm: "Cancel rollout", text: `Nothing more is offered, for good. ${inFlightWords(r)} What is upgraded stays upgraded; roll back to undo it.`, done: `${name} is being cancelled`, harmless: false };
    case "retry":
      return {
        title: "Try all failed targets again?", confirm: `Try ${plural(failed, "target")} again`,
        text: `${plural(failed, "target")} that failed ${failed === 1 ? "goes" : "go"} back in line${r.state === "paused" ? ", and the version is offered when the rollout is resumed" : ""}. What was withdrawn or has expired is not among them.`,
        done: `${plural(failed, "target")} ${failed === 1 ? "is" : "are"} put back in line`, harmless: true,
      };
    case "rollback_failed":
      return { title: `Roll back ${name}?`, confirm: "Roll back what failed", text: `${plural(stuck, "target")} that failed, wherever ${stuck === 1 ? "it stands" : "they stand"}, ${stuck === 1 ? "goes" : "go"} back to the last version ${stuck === 1 ? "it was" : "they were"} healthy with.${already(r)}`, done: `Rolling back what failed of ${name}`, harmless: false };
    case "rollback_all": {
      const n = putBackOf(r);
      return { title: `Roll back ${name}?`, confirm: "Roll back all", text: `${plural(n, "target")} that failed, ${n === 1 ? "was upgraded or is" : "were upgraded or are"} under way ${n === 1 ? "goes" : "go"} back to the last version ${n === 1 ? "it was" : "they were"} healthy with.${already(r)}`, done: `Rolling back all of ${name}`, harmless: false };
    }
    case "delete":
      return { title: `Delete ${name}?`, confirm: "Delete draft", text: "The plan and its previews are gone for good. No agent notices.", done: `${name} was deleted`, harmless: false };
  }
}

/** Says who stays where it is. */
function already(r: Rollout): string {
  const n = r.counts.rolled_back;
  return n > 0 ? ` ${plural(n, "target")} ${n === 1 ? "was put back by its watcher" : "were put back by their watchers"} already.` : "";
}

function resumeWords(r: Rollout): string {
  const failed = badOf(r.counts) - (r.forgiven ?? 0);
  switch (r.stop?.kind) {
    case "threshold":
    case "canary":
      return `It goes on to the hosts that are left with the same version. The ${plural(failed, "failure")} so far no longer ${failed === 1 ? "counts" : "count"}; further ones stop it again.`;
    case "exposure":
      return "It goes on; where the exposure limit still holds it stops again.";
    case "rollback":
      return "It goes on with the version that is being put back. That is refused while its rollback is under way.";
    case "deadline":
      return "It goes on, and waits once more for what took too long.";
    default:
      return "It goes on where it stopped.";
  }
}
