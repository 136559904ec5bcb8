/**
 * Groups of rollouts: the commands that their states allow, with the reasons why not, and words.
 * Mirrors the server's checks, so that an enabled button is not refused; the server still decides.
 */
import type { Group, GroupMember, GroupMemberState, GroupPreview, GroupState } from "~/api/types";
import { plural } from "./words";

export const GROUP_COMMANDS = ["start", "pause", "pause_now", "resume", "skip", "rollback", "cancel", "delete"] as const;
export type GroupCommand = (typeof GROUP_COMMANDS)[number];

export const groupStateLabel: Record<GroupState, string> = {
  draft: "Draft", running: "Running", paused: "Paused", cancelling: "Cancelling", rolling_back: "Rolling back", completed: "Completed", partial: "Partial",
  failed: "Failed", cancelled: "Cancelled", rolled_back: "Rolled back",
};

export const memberLabel: Record<GroupMemberState, string> = {
  pending: "Waiting", running: "Upgrading", completed: "Completed", failed: "Failed", skipped: "Left out", cancelled: "Not upgraded", rolled_back: "Rolled back",
  rollback_failed: "Rollback failed", kept: "Keeps its version",
};

export const policyText: Record<Group["plan"]["failure_policy"], string> = {
  partial_ok: "A failure ends the group; what is done stays",
  rollback_all: "A failure rolls all members back, the last one first",
  manual: "A failure pauses the group for an operator",
};

export const groupStopTitle: Record<NonNullable<Group["stop"]>["kind"], string> = {
  operator: "Paused", failure: "A member failed", drift: "The fleet is not as previewed", refused: "A step was refused",
};

const isActive = (s: GroupState) => s === "running" || s === "paused" || s === "cancelling" || s === "rolling_back";

const standing = (g: Group) => `It is ${groupStateLabel[g.state]?.toLowerCase() ?? g.state}.`;

/** The members that can be left out now. */
export function skippable(g: Group): GroupMember[] {
  if (g.rolling_back) return g.state === "paused" ? g.members.filter((m) => m.name === g.stop?.member) : [];
  if (g.state !== "running" && g.state !== "paused") return [];
  return g.members.filter((m) => m.state === "pending" || m.state === "running" || m.state === "failed");
}

/** whyNotGroup returns null if the command is allowed. */
export function whyNotGroup(command: GroupCommand, g: Group): string | null {
  switch (command) {
    case "start":
      return g.state === "draft" ? null : standing(g);
    case "delete":
      return g.state === "draft" ? null : `${standing(g)} Only drafts can be deleted.`;
    case "pause":
    case "pause_now":
      return g.state === "running" ? null : standing(g);
    case "resume":
      if (g.state !== "paused") return standing(g);
      return g.stop?.kind === "failure" && g.members.some((m) => m.name === g.stop?.member && m.state === "failed")
        ? `The rollout of ${g.stop.member} has ended: leave the member out, or roll the group back.`
        : null;
    case "skip":
      if (skippable(g).length > 0) return null;
      return g.rolling_back && isActive(g.state) ? "Only a member that stopped the rollback can be left out of it." : standing(g);
    case "cancel":
      if (g.state !== "running" && g.state !== "paused") return standing(g);
      return g.rolling_back ? "It is being rolled back, which cannot be cancelled half way." : null;
    case "rollback":
      if (g.state === "draft" || g.state === "rolling_back" || g.state === "rolled_back") return standing(g);
      return g.rolling_back ? "It was rolled back already: see which members did not go back." : null;
  }
}

/** Whether the server refuses the command without a reason. */
export function groupNeedsWhy(command: GroupCommand, g: Group, member?: string): boolean {
  const gate = g.state === "paused" && (g.stop?.kind === "failure" || g.stop?.kind === "drift");
  return gate && !g.rolling_back && (command === "resume" || (command === "skip" && member === g.stop?.member));
}

/** The command that an operator most likely needs. After a failure it is a decision, and none stands out. */
export function primaryOf(g: Group): GroupCommand | undefined {
  if (g.state === "draft") return "start";
  if (g.state === "paused" && g.stop?.kind !== "failure") return "resume";
  return undefined;
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
      return { title: `Start ${name}?`, confirm: "Start the group", text: "It starts exactly as previewed: if the fleet has changed since, the start is refused.", done: `${name} started`, harmless: true };
    case "pause":
      return { title: `Pause ${name}?`, confirm: "Pause after the current batch", text: "No member is started, and the rollout of the current one pauses when its batch has ended.", done: `${name} is paused`, harmless: true };
    case "pause_now":
      return { title: `Pause ${name}?`, confirm: "Pause at once", text: "No member is started, and the rollout of the current one withdraws offers that no agent has begun.", done: `${name} is paused`, harmless: true };
    case "resume":
      return {
        title: `Resume ${name}?`, confirm: g.rolling_back ? "Resume the rollback" : "Resume the group", done: `${name} goes on`, harmless: true,
        text: g.stop?.kind === "failure" ? "The failures so far are accepted: the rollout of the member goes on." : g.stop?.kind === "drift" ? "The member is started with the fleet as it is now." : "It goes on, with the rollout of its current member.",
      };
    case "skip":
      return { title: "Leave a member out?", confirm: "Leave it out", text: g.rolling_back ? "The member keeps its version." : "Its rollout is cancelled if it is under way, and the group goes on without it.", done: `${name} goes on without it` };
    case "rollback":
      return { title: `Roll ${name} back?`, confirm: "Roll all members back", text: "All members that have begun are rolled back, the last one first, each agent to its last healthy version.", done: `${name} is being rolled back` };
    case "cancel":
      return { title: `Cancel ${name}?`, confirm: "Cancel the group", text: "No member is started, and the rollout of the current one is cancelled. Upgraded agents stay upgraded.", done: `${name} is being cancelled` };
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
  return none ? `${none.name} would upgrade no agent: leave it out of the plan.` : null;
}

export const previewText = (p: GroupPreview): string =>
  `${plural(p.members.reduce((n, m) => n + m.targets, 0), "agent")} in ${plural(p.members.length, "member")}`;
