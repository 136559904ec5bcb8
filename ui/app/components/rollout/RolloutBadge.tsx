import {
  IconAlertTriangle, IconArrowBackUp, IconCircleCheck, IconCircleMinus, IconClock, IconEye, IconHandStop, IconHourglass, IconLoader2, IconMoonStars,
  IconPencil, IconPlayerPause, IconPlayerPlay, IconSend, type Icon,
} from "@tabler/icons-react";
import type { GroupMemberState, GroupState, RolloutState, TargetState } from "~/api/types";
import { groupStateLabel, memberLabel } from "~/util/group";
import { stateLabel, targetLabel } from "~/util/rolloutText";
import classes from "./Rollout.module.css";

export type Tone = "good" | "bad" | "warn" | "moving" | "quiet";

/** A shape for each state, since many people cannot tell the colours apart. */
const states: Record<RolloutState, [Tone, Icon]> = {
  draft: ["quiet", IconPencil],
  running: ["moving", IconPlayerPlay],
  paused: ["warn", IconPlayerPause],
  cancelling: ["warn", IconHandStop],
  completed: ["good", IconCircleCheck],
  failed: ["bad", IconAlertTriangle],
  cancelled: ["quiet", IconCircleMinus],
  rolled_back: ["warn", IconArrowBackUp],
};

const targets: Record<TargetState, [Tone, Icon]> = {
  pending: ["quiet", IconClock],
  held: ["quiet", IconMoonStars],
  offered: ["moving", IconSend],
  upgrading: ["moving", IconLoader2],
  verifying: ["moving", IconEye],
  succeeded: ["good", IconCircleCheck],
  failed: ["bad", IconAlertTriangle],
  rolled_back: ["bad", IconArrowBackUp],
  withdrawn: ["warn", IconHandStop],
  skipped: ["quiet", IconCircleMinus],
  expired: ["warn", IconHourglass],
  cancelled: ["quiet", IconCircleMinus],
};

const groups: Record<GroupState, [Tone, Icon]> = {
  ...states,
  rolling_back: ["warn", IconArrowBackUp],
  partial: ["warn", IconAlertTriangle],
};

const members: Record<GroupMemberState, [Tone, Icon]> = {
  pending: ["quiet", IconClock],
  running: ["moving", IconPlayerPlay],
  completed: ["good", IconCircleCheck],
  failed: ["bad", IconAlertTriangle],
  skipped: ["quiet", IconCircleMinus],
  cancelled: ["quiet", IconCircleMinus],
  rolled_back: ["warn", IconArrowBackUp],
  rollback_failed: ["bad", IconAlertTriangle],
  kept: ["warn", IconHandStop],
};

export function GroupBadge({ state }: { state: GroupState }) {
  return <Word of={groups[state] ?? ["quiet", IconClock]} word={groupStateLabel[state] ?? state} title={`State: ${state}`} />;
}

export function MemberBadge({ state }: { state: GroupMemberState }) {
  return <Word of={members[state] ?? ["quiet", IconClock]} word={memberLabel[state] ?? state} title={`State: ${state}`} />;
}

export function RolloutBadge({ state }: { state: RolloutState }) {
  // A newer server may have a state that this page does not know.
  return <Word of={states[state] ?? ["quiet", IconClock]} word={stateLabel[state] ?? state} title={`State: ${state}`} />;
}

export function TargetBadge({ state }: { state: TargetState }) {
  return <Word of={targets[state] ?? ["quiet", IconClock]} word={targetLabel[state] ?? state} title={`State: ${state}`} />;
}

/** A state as a word, with its shape and colour. */
export function Word({ of: [tone, Shape], word, title }: { of: [Tone, Icon]; word: string; title: string }) {
  return <span className={classes.badge} data-tone={tone} title={title}><Shape size={14} aria-hidden />{word}</span>;
}
