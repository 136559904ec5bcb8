import { useQuery } from "@tanstack/react-query";
import { fleetHistoryQuery, HISTORY_SHOWN } from "~/api/queries";
import { shortHash } from "~/util/rollout/preview";
import { closed } from "~/util/words";
import { RolloutBadge } from "../base/Badge";
import { Empty, LoadError, Loading, Section } from "../base/Page";
import { TextLink } from "../base/TextLink";
import { When } from "../base/Time";
import classes from "./Fleet.module.css";

/** Who changed a fleet, when and to which hash, newest first. */
export function FleetTrail({ name }: { name: string }) {
  const list = useQuery(fleetHistoryQuery(name));
  const items = list.data?.items ?? [];
  return (
    <Section title="Who changed what" plain>
      {list.isError ? <LoadError what="The history" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? <Loading rows={3} /> : null}
      {list.data && items.length === 0 ? <Empty title="Nothing yet" /> : null}
      {items.length > 0 ? (
        <ol className={classes.trail} tabIndex={0} aria-label="History, newest first">
          {items.map((c, i) => (
            <li key={`${c.at} ${i}`}>
              <div className={classes.trailHead}>
                <span>{closed(c.text)}</span>
                <When at={c.at} />
              </div>
              <div className={classes.sub}>
                {c.text.startsWith(c.by) ? null : <>{c.by} · </>}generation {c.generation ?? 0}
                {c.hash ? (
                  <>
                    {" "}
                    · hash{" "}
                    <span className="mono" title={c.hash}>
                      {shortHash(c.hash)}…
                    </span>
                  </>
                ) : null}
              </div>
              {c.changed.some((path) => !c.text.includes(path)) ? <div className={`mono ${classes.sub}`}>{c.changed.join(", ")}</div> : null}
              {c.why ? <div className={classes.quote}>{c.why}</div> : null}
              {c.rollouts.length > 0 ? (
                <div className={classes.badges}>
                  {c.rollouts.map((r) => (
                    <TextLink key={r.id} to="/rollouts/$rolloutId" params={{ rolloutId: r.id }} size="xs" aria-label={`Rollout ${r.id}`}>
                      <RolloutBadge rollout={{ state: r.state }} />
                    </TextLink>
                  ))}
                </div>
              ) : null}
            </li>
          ))}
        </ol>
      ) : null}
      {list.data && list.data.total > HISTORY_SHOWN ? (
        <div className={classes.sub}>
          The newest {HISTORY_SHOWN} of {list.data.total.toLocaleString()} changes.
        </div>
      ) : null}
    </Section>
  );
}
