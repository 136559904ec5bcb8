/** How far the rollout is, what it waits for, and what would stop it. */
import type { Rollout } from "~/api/types";
import { committedPercent, committedText, endText, restText } from "~/util/board/board";
import { lockstepText, waitsOf, waitTitle } from "~/util/rollout/rolloutText";
import { plural, sentence } from "~/util/words";
import { ProgressBar } from "../base/ProgressBar";
import { TextLink } from "../base/TextLink";
import { Ago } from "../base/Time";
import classes from "./Board.module.css";
import { Countdown } from "./Countdown";

export function StatusStrip({ rollout: r }: { rollout: Rollout }) {
  const end = endText(r);
  if (end) return <Ended rollout={r} text={end} />;
  return (
    <div className={classes.strip}>
      <section className={classes.stripCell} aria-label="Progress">
        <div className={classes.stripName}>Progress</div>
        <div className={classes.figureRow}>
          <span className={classes.figure}>{committedPercent(r.counts)} %</span>
          <span className={classes.figureText}>{committedText(r.counts)}</span>
        </div>
        <ProgressBar counts={r.counts} large />
        <div className={classes.stripNote}>{restText(r.counts)}</div>
      </section>
      <section className={classes.stripCell} aria-label="Waits for">
        <div className={classes.stripName}>Waits for</div>
        <Waits rollout={r} />
      </section>
      <section className={classes.stripCell} aria-label="Would stop">
        <div className={classes.stripName}>Would stop</div>
        <div className={classes.stripText}>{r.would_stop ? sentence(r.would_stop) : "Nothing of its own."}</div>
        {r.forgiven ? (
          <div className={classes.stripNote}>
            {plural(r.forgiven, "earlier failure")} no longer {r.forgiven === 1 ? "counts" : "count"}.
          </div>
        ) : null}
      </section>
    </div>
  );
}

/** How the rollout has ended, in a sentence. */
function Ended({ rollout: r, text }: { rollout: Rollout; text: string }) {
  return (
    <section className={classes.strip} data-ended aria-label="Result">
      <div className={classes.stripCell}>
        <div className={classes.figureRow}>
          <span className={classes.figure}>{committedPercent(r.counts)} %</span>
          <span className={classes.stripText}>{text}</span>
          {r.rolled_back_by ? (
            <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: r.rolled_back_by }} size="sm">
              Show its rollback
            </TextLink>
          ) : null}
        </div>
        <ProgressBar counts={r.counts} large />
      </div>
    </section>
  );
}

const ordered: Record<string, string> = {
  retry: "hosts are retried",
  skip: "hosts are skipped",
  withdraw: "orders are withdrawn",
  return: "hosts go back",
  adjust: "its limits are adjusted",
};

function Waits({ rollout: r }: { rollout: Rollout }) {
  const waits = waitsOf(r);
  const staging = r.staging && !r.staging.ended_at ? r.staging : undefined;
  if (waits.length + (r.orders?.length ?? 0) === 0 && !r.pause_asked && !staging && !r.lockstep) {
    return <div className={classes.stripText}>{r.state === "paused" ? "A person, who resumes or cancels it." : "Nothing."}</div>;
  }
  return (
    <ul className={classes.waits}>
      {waits.map((w, i) => (
        <li key={`${w.code} ${w.since}`}>
          <strong>{waitTitle(w.code)}</strong>
          {w.until ? (
            <>
              , <Countdown until={w.until} />
            </>
          ) : null}
          {i === 0 ? (
            <div className={classes.stripNote}>
              {sentence(w.text)} Since <Ago at={w.since} />.
            </div>
          ) : null}
        </li>
      ))}
      {staging ? (
        <li>
          <strong>Staging</strong>: {staging.answered.toLocaleString()} of {plural(staging.targets, "host")} have answered, until{" "}
          <Countdown until={staging.until} />
        </li>
      ) : null}
      {r.lockstep ? (
        <li aria-label="Lockstep">
          <strong>Lockstep</strong>: {sentence(lockstepText(r))}
        </li>
      ) : null}
      {r.pause_asked ? (
        <li>
          {r.pause_asked.by} has asked for a pause after this batch{r.pause_asked.why ? `: “${r.pause_asked.why}”` : "."}
        </li>
      ) : null}
      {r.orders?.map((o) => (
        <li key={o.id}>
          By order of {o.by}, {ordered[o.kind] ?? o.kind} soon.
        </li>
      ))}
    </ul>
  );
}
