/** The upgrade of an agent: the phases it has passed with their times, the one it is in, and how it ended. */
import { IconAlertTriangle, IconCheck } from "@tabler/icons-react";
import { useInfiniteQuery } from "@tanstack/react-query";
import { timelineQuery } from "~/api/agents";
import type { Agent, Progress } from "~/api/types";
import { ProgressBadge } from "~/components/base/Badge";
import { useClock } from "~/components/base/Now";
import { TextLink } from "~/components/base/TextLink";
import { Ago } from "~/components/base/Time";
import { phasesOf, type Step, stepsOf } from "~/util/agent/timeline";
import { diagnosisTitle, watchedAgentText } from "~/util/agent/watch";
import { isMoving, isOver, progressTone, progressWord } from "~/util/state";
import { clock, duration, exactWithZone } from "~/util/time";
import { entryOf, upgradeText, upgradeTitle } from "~/util/upgrade/upgradeNow";
import { sentence } from "~/util/words";
import classes from "./UpgradeNow.module.css";

export function UpgradeNow({ agent, progress: p }: { agent: Agent; progress: Progress }) {
  const now = useClock();
  const timeline = useInfiniteQuery(timelineQuery(agent.id));
  const entry = entryOf(p, timeline.data?.pages.flatMap((x) => x.items) ?? []);
  const phases = entry ? phasesOf(entry, now) : [];
  const text = upgradeText(p, agent, now);
  return (
    <section className={classes.box} data-tone={progressTone(p.state)} aria-label={upgradeTitle(p)}>
      <header className={classes.head}>
        <h2 className={classes.title}>{upgradeTitle(p)}</h2>
        <ProgressBadge progress={p} strong />
        <Since progress={p} now={now} />
      </header>
      {/* Without the share of the download: a screen reader announces phases. */}
      <div className="sr-only" aria-live="polite">
        {progressWord[p.state]}
      </div>
      {p.reason ? <p className={classes.text}>{sentence(p.reason.text)}</p> : null}
      {text ? <p className={classes.text}>{text}</p> : null}
      {p.retrying ? (
        <p className={classes.text}>
          <IconAlertTriangle size={14} aria-hidden /> The last attempt failed: {sentence(p.retrying)} The host tries again.
        </p>
      ) : null}
      <Diagnosis agent={agent} />
      <Steps
        steps={stepsOf(p.state, phases, p.rollback ?? false)}
        label={`Phases of the ${p.rollback ? "rollback" : "upgrade"}`}
        percent={p.state === "downloading" ? p.percent : undefined}
        now={isMoving(p.state)}
      />
      {p.by || p.rollout ? (
        <p className={classes.by}>
          Ordered {p.by ? <>by {p.by}</> : null}
          {p.rollout ? (
            <>
              {" "}
              with the rollout{" "}
              <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: p.rollout.id }} inherit underline="always">
                {p.rollout.name}
              </TextLink>
            </>
          ) : null}
          {entry?.why ? <>: {sentence(entry.why)}</> : "."}
        </p>
      ) : null}
    </section>
  );
}

function Since({ progress: p, now }: { progress: Progress; now: number }) {
  if (!p.since || p.state === "scheduled") return null;
  if (isOver(p.state))
    return (
      <span className={classes.since}>
        <Ago at={p.since} />
      </span>
    );
  return (
    <time className={classes.since} dateTime={p.since} title={`Since ${exactWithZone(p.since)}`}>
      for {duration(now - Date.parse(p.since))}
    </time>
  );
}

/** Why the agent is silent during the watch, and how its watcher sees it. */
function Diagnosis({ agent }: { agent: Agent }) {
  const w = agent.watch;
  if (!w) return null;
  const judging = w.stage === "watching" || w.stage === "rolling_back";
  return (
    <>
      {w.diagnosis ? (
        <p className={classes.text}>
          <b>{diagnosisTitle(w.diagnosis.code)}.</b> {sentence(w.diagnosis.text)}
        </p>
      ) : null}
      {judging ? <p className={classes.by}>The watcher sees the agent: {watchedAgentText(w)}.</p> : null}
    </>
  );
}

const placeWords: Record<Step["place"], string> = { done: "done", now: "under way", failed: "ended here", todo: "not begun" };

function Steps({ steps, label, percent, now }: { steps: readonly Step[]; label: string; percent?: number; now: boolean }) {
  return (
    <ol className={classes.steps} aria-label={label}>
      {steps.map((s) => (
        <li
          key={s.state}
          className={classes.step}
          data-place={s.place}
          data-tone={s.place === "now" ? progressTone(s.state) : undefined}
          aria-current={s.place === "now" ? "step" : undefined}
        >
          <span className={classes.track}>
            <span
              className={classes.fill}
              data-whole={percent === undefined || s.place !== "now" || undefined}
              data-still={!now || undefined}
              style={s.place === "now" && percent !== undefined ? { width: `${percent}%` } : undefined}
            />
          </span>
          <span className={classes.word}>
            {s.place === "done" ? <IconCheck size={12} stroke={3} aria-hidden /> : s.place === "failed" ? <IconAlertTriangle size={12} aria-hidden /> : null}
            {progressWord[s.state]}
            {s.place === "now" && percent !== undefined ? ` ${Math.floor(percent)} %` : ""}
            <span className="sr-only">, {placeWords[s.place]}</span>
          </span>
          <span className={classes.when}>
            {s.at ? (
              <time dateTime={s.at} title={exactWithZone(s.at)}>
                {clock(s.at)}
              </time>
            ) : null}
            {s.ms === undefined ? null : <span>{duration(s.ms)}</span>}
          </span>
        </li>
      ))}
    </ol>
  );
}
