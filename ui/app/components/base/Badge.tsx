/** States, each with a shape and a word besides its colour. */
import {
  type Icon,
  IconAlertTriangle,
  IconArrowBackUp,
  IconCircle,
  IconCircleCheck,
  IconCircleDashed,
  IconCircleMinus,
  IconCircleX,
  IconClock,
  IconDownload,
  IconEye,
  IconHourglass,
  IconLoader2,
  IconPlayerPause,
  IconPlugConnectedX,
  IconRefresh,
  IconSend,
} from "@tabler/icons-react";
import type { ReactNode } from "react";
import type { Health, Progress, ProgressState, RolloutState } from "~/api/types";
import { healthTone, healthWord, progressText, progressTone, rolloutLook, type Tone } from "~/util/state";
import classes from "./Badge.module.css";

const tones: Record<Tone, Icon> = { ok: IconCircleCheck, move: IconLoader2, watch: IconEye, wait: IconHourglass, bad: IconCircleX, away: IconCircleDashed };

const healthIcons: Record<Health, Icon> = {
  healthy: IconCircleCheck,
  degraded: IconAlertTriangle,
  failed: IconCircleX,
  offline: IconPlugConnectedX,
  enrolling: IconLoader2,
  inactive: IconCircleMinus,
  uninstalled: IconCircleMinus,
  unenrolled: IconCircleMinus,
};

const progressIcons: Record<ProgressState, Icon> = {
  scheduled: IconClock,
  waiting_for_host: IconPlugConnectedX,
  sent: IconSend,
  accepted: IconSend,
  downloading: IconDownload,
  installing: IconLoader2,
  restarting: IconRefresh,
  watching: IconEye,
  committed: IconCircleCheck,
  rolled_back: IconArrowBackUp,
  failed: IconCircleX,
};

const rolloutIcons: Partial<Record<RolloutState, Icon>> = {
  draft: IconCircle,
  paused: IconPlayerPause,
  rolled_back: IconArrowBackUp,
  cancelled: IconCircleMinus,
};

interface Props {
  tone: Tone;
  children: ReactNode;
  icon?: Icon;
  /** A filled background, for the one state that a page is about. */
  strong?: boolean;
  title?: string;
}

export function Badge({ tone, children, icon, strong, title }: Props) {
  const Shape = icon ?? tones[tone];
  return (
    <span className={classes.badge} data-tone={tone} data-strong={strong || undefined} title={title}>
      <Shape size={14} stroke={2} aria-hidden />
      <span>{children}</span>
    </span>
  );
}

export function HealthBadge({ health, strong }: { health: Health; strong?: boolean }) {
  return (
    <Badge tone={healthTone(health)} icon={healthIcons[health]} strong={strong}>
      {healthWord[health] ?? health}
    </Badge>
  );
}

export function ProgressBadge({ progress, strong }: { progress: Progress; strong?: boolean }) {
  return (
    <Badge tone={progressTone(progress.state)} icon={progressIcons[progress.state]} strong={strong} title={progress.retrying}>
      {progressText(progress)}
    </Badge>
  );
}

/** The shape of a state alone, where its word stands elsewhere. */
export function ProgressIcon({ state }: { state: ProgressState }) {
  const Shape = progressIcons[state] ?? IconCircleDashed;
  return <Shape size={14} stroke={2} aria-hidden />;
}

export function RolloutBadge({ rollout, strong }: { rollout: { state: RolloutState; waiting?: readonly { code: string }[] }; strong?: boolean }) {
  const { word, tone } = rolloutLook(rollout);
  return (
    <Badge tone={tone} icon={word === "Waiting" ? undefined : rolloutIcons[rollout.state]} strong={strong}>
      {word}
    </Badge>
  );
}
