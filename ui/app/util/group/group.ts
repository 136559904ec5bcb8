/** Groups of rollouts in words. The server says which commands are possible, and why the others are not. */
import type { Group, GroupMember, GroupMemberState, GroupPreview, GroupState } from "~/api/types";
import type { Tone } from "~/util/state";
import { plural } from "~/util/words";

export type GroupCommand = "start" | "pause" | "pause_now" | "resume" | "skip" | "rollback" | "cancel" | "delete";

/** The commands of the menu; a draft is started from its preview, which the start sends. */
export const groupCommandWord: Partial<Record<string, string>> & Record<Exclude<GroupCommand, "start">, string> = {
  pause: "Pause…",
  pause_now: "Pause at once…",
  resume: "Resume…",
  skip: "Leave a member out…",
  rollback: "Roll back all members…",
  cancel: "Cancel the group…",
  delete: "Delete the draft…",
};

export const groupStateLabel: Record<GroupState, string> = {
  draft: "Draft",
  running: "Running",
  paused: "Paused",
  cancelling: "Cancelling",
  rolling_back: "Rolling back",
  completed: "Completed",
  partial: "Partial",
  failed: "Failed",
  cancelled: "Cancelled",
  rolled_back: "Rolled back",
};

export const memberLabel: Record<GroupMemberState, string> = {
  pending: "Waiting",
  running: "Upgrading",
  completed: "Completed",
  failed: "Failed",
  skipped: "Left out",
  cancelled: "Not upgraded",
  rolled_back: "Rolled back",
  rollback_failed: "Rollback failed",
  kept: "Keeps its version",
};

export const policyText: Record<Group["plan"]["failure_policy"], string> = {
  partial_ok: "A failure ends the group; what is done stays",
  rollback_all: "A failure rolls all members back, the last one first",
  manual: "A failure pauses the group for an operator",
};

export const groupStopTitle: Record<NonNullable<Group["stop"]>["kind"], string> = {
  operator: "Paused",
  failure: "A member failed",
  drift: "The fleet is not as previewed",
  refused: "A step was refused",
};

/** The members that an operator may want to leave out, when the server allows it. */
export function skippable(g: Group): GroupMember[] {
  if (g.rolling_back) return g.state === "paused" ? g.members.filter((m) => m.name === g.stop?.member) : [];
  if (g.state !== "running" && g.state !== "paused") return [];
  return g.members.filter((m) => m.state === "pending" || m.state === "running" || (m.state === "failed" && !m.tolerated));
}

interface Words {
  title: string;
  confirm: string;
  text: string;
  done: string;
  harmless?: boolean;
}

export function groupCommandText(command: GroupCommand, g: Group): Words {
  const name = `“${g.plan.name}”`;
  switch (command) {
    case "start":
      return {
        title: `Start ${name}?`,
        confirm: "Start the group",
        text: "It starts exactly as previewed: if the fleet has changed since, the start is refused.",
        done: `${name} started`,
        harmless: true,
      };
    case "pause":
      return {
        title: `Pause ${name}?`,
        confirm: "Pause after the current batch",
        text: "No member is started, and the rollout of the current one pauses when its batch has ended.",
        done: `${name} is paused`,
        harmless: true,
      };
    case "pause_now":
      return {
        title: `Pause ${name}?`,
        confirm: "Pause at once",
        text: "No member is started, and the rollout of the current one withdraws offers that no host has begun.",
        done: `${name} is paused`,
        harmless: true,
      };
    case "resume":
      return {
        title: `Resume ${name}?`,
        confirm: g.rolling_back ? "Resume the rollback" : "Resume the group",
        done: `${name} goes on`,
        harmless: true,
        text:
          g.stop?.kind === "failure"
            ? "The failures so far are accepted: the rollout of the member goes on."
            : g.stop?.kind === "drift"
              ? "The member is started with the fleet as it is now."
              : "It goes on, with the rollout of its current member.",
      };
    case "skip":
      return {
        title: "Leave a member out?",
        confirm: "Leave it out",
        text: g.rolling_back ? "The member keeps its version." : "Its rollout is cancelled if it is under way, and the group goes on without it.",
        done: `${name} goes on without it`,
      };
    case "rollback":
      return {
        title: `Roll ${name} back?`,
        confirm: "Roll all members back",
        text: "All members that have begun are rolled back, the last one first, each host to its last healthy version.",
        done: `${name} is being rolled back`,
      };
    case "cancel":
      return {
        title: `Cancel ${name}?`,
        confirm: "Cancel the group",
        text: "No member is started, and the rollout of the current one is cancelled. Upgraded hosts stay upgraded.",
        done: `${name} is being cancelled`,
      };
    case "delete":
      return { title: `Delete the draft ${name}?`, confirm: "Delete the draft", text: "Nothing was started.", done: `${name} was deleted` };
  }
}

/** doneOf counts the members that change no more. */
export const doneOf = (g: Group): number => g.members.filter((m) => m.state !== "pending" && m.state !== "running").length;

/** whyNotStartGroup returns null if a preview can be started. */
export function whyNotStartGroup(p: GroupPreview | undefined): string | null {
  if (!p) return "Wait for the preview.";
  const none = p.members.find((m) => m.targets === 0);
  return none ? `${none.name} would upgrade no host: leave it out of the plan.` : null;
}

/** hostsOf counts the hosts that a group would upgrade, by its preview. */
export const hostsOf = (p: GroupPreview): number => p.members.reduce((n, m) => n + m.targets, 0);

export const previewText = (p: GroupPreview): string => `${plural(hostsOf(p), "host")} in ${plural(p.members.length, "member")}`;

export const groupTone: Record<GroupState, Tone> = {
  draft: "away",
  running: "move",
  paused: "wait",
  cancelling: "wait",
  rolling_back: "wait",
  completed: "ok",
  partial: "wait",
  failed: "bad",
  cancelled: "away",
  rolled_back: "bad",
};

export const memberTone: Record<GroupMemberState, Tone> = {
  pending: "away",
  running: "move",
  completed: "ok",
  failed: "bad",
  skipped: "away",
  cancelled: "away",
  rolled_back: "bad",
  rollback_failed: "bad",
  kept: "wait",
};
