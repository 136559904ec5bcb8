/** One entry of a timeline: a line, and the phases of an upgrade when it is open. */
import {
  type Icon,
  IconChevronDown,
  IconChevronRight,
  IconFileDescription,
  IconFileZip,
  IconLogout2,
  IconPackage,
  IconPackageOff,
  IconPlugConnected,
  IconTag,
} from "@tabler/icons-react";
import type { TimelineEntry } from "~/api/types";
import { ProgressIcon } from "~/components/base/Badge";
import { useClock } from "~/components/base/Now";
import { Prose } from "~/components/base/Prose";
import { TextLink } from "~/components/base/TextLink";
import { entryTitle, entryTone, isUpgrade, lengthOf, stateWords } from "~/util/agent/timeline";
import { withoutIds } from "~/util/prose";
import { isMoving } from "~/util/state";
import { duration, exactWithZone, hourMinute } from "~/util/time";
import { closed, sentence } from "~/util/words";
import { Phases } from "./Phases";
import classes from "./Timeline.module.css";

const icons: Record<string, Icon> = {
  enrolled: IconPlugConnected,
  policy: IconFileDescription,
  staged: IconPackage,
  source: IconPackageOff,
  unenrolled: IconLogout2,
  diagnostics: IconFileZip,
  change: IconTag,
};

export function TimelineItem({ entry: e, open, onOpen }: { entry: TimelineEntry; open: boolean; onOpen: () => void }) {
  const title = withoutIds(entryTitle(e));
  const more = isUpgrade(e);
  const Shape = icons[e.kind] ?? IconFileDescription;
  return (
    <li className={classes.item} data-tone={entryTone(e)}>
      <span className={classes.mark} aria-hidden>
        {more && e.state ? <ProgressIcon state={e.state} /> : <Shape size={14} />}
      </span>
      <div className={classes.body}>
        <div className={classes.line}>
          <span className={classes.title}>
            {more ? (
              <button type="button" className={classes.open} aria-expanded={open} onClick={onOpen}>
                {title}
                {open ? <IconChevronDown size={14} aria-hidden /> : <IconChevronRight size={14} aria-hidden />}
              </button>
            ) : (
              <Prose>{title}</Prose>
            )}
            {more ? <Outcome entry={e} /> : null}
          </span>
          <time className={classes.at} dateTime={e.at} title={exactWithZone(e.at)}>
            {hourMinute(e.at)}
          </time>
        </div>
        <Who entry={e} />
        {e.reason ? <p className={classes.reason}>{sentence(e.reason.text)}</p> : null}
        {open && more ? (
          <div className={classes.phases}>
            <Phases entry={e} label={`Phases of the ${title.toLowerCase()}`} />
          </div>
        ) : null}
      </div>
    </li>
  );
}

function Outcome({ entry: e }: { entry: TimelineEntry }) {
  const now = useClock();
  if (!e.state) return null;
  const long = e.ended_at ? `after ${duration(lengthOf(e, now))}` : isMoving(e.state) ? `for ${duration(lengthOf(e, now))}` : "";
  return (
    <span className={classes.outcome}>
      <b>{stateWords(e)}</b> {long}
    </span>
  );
}

/** Who ordered it, and the reason that was given. */
function Who({ entry: e }: { entry: TimelineEntry }) {
  if (!e.by && !e.rollout && !e.why) return null;
  return (
    <div className={classes.who}>
      {e.by ? <>by {e.by}</> : "by the host"}
      {e.rollout ? (
        <>
          {" "}
          with the rollout{" "}
          <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: e.rollout.id }} inherit underline="always">
            {e.rollout.name}
          </TextLink>
        </>
      ) : null}
      {e.why ? <>: {closed(e.why)}</> : null}
    </div>
  );
}
