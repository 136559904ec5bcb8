/** The lists of the overview: what needs a person, what rolls out, what was changed. */

import { IconCircleCheck } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { activeRolloutsQuery, attentionQuery, trailQuery } from "~/api/overview";
import type { AttentionItem, Rollout } from "~/api/types";
import { SubjectLink } from "~/components/audit/SubjectLink";
import { Badge, RolloutBadge } from "~/components/base/Badge";
import { Empty, LoadError, Loading, Section } from "~/components/base/Page";
import { TextLink } from "~/components/base/TextLink";
import { Ago } from "~/components/base/Time";
import { useRolloutNames } from "~/hooks/useRolloutNames";
import { placeOf, severityTone, severityWord } from "~/util/overview/attention";
import { hourMinute } from "~/util/time";
import { changeText, closed } from "~/util/words";
import { ProgressBar } from "../base/ProgressBar";
import classes from "./Overview.module.css";

/** How many entries each list shows; the page behind it has all. */
const SHOWN = 5;

export function NeedsYou() {
  const list = useQuery(attentionQuery);
  const [all, setAll] = useState(false);
  const items = list.data?.items ?? [];
  return (
    <Section title={items.length > 0 ? `Needs you (${items.length.toLocaleString()})` : "Needs you"} flush>
      {list.isError ? <LoadError what="What needs you" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? (
        <div className={classes.pad}>
          <Loading rows={3} />
        </div>
      ) : null}
      {list.data && items.length === 0 ? <Empty icon={<IconCircleCheck size={28} stroke={1.5} aria-hidden />} title="Nothing waits for you" /> : null}
      <ul className={classes.list}>
        {(all ? items : items.slice(0, SHOWN)).map((i) => (
          <Need key={`${i.kind} ${i.subject ?? ""} ${i.text}`} item={i} />
        ))}
      </ul>
      {items.length > SHOWN ? (
        <button type="button" className={classes.more} aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? "Show fewer" : `Show ${(items.length - SHOWN).toLocaleString()} more`}
        </button>
      ) : null}
    </Section>
  );
}

function Need({ item }: { item: AttentionItem }) {
  const place = placeOf(item);
  return (
    <li className={classes.item}>
      <div className={classes.itemHead}>
        <Badge tone={severityTone[item.severity]}>{severityWord[item.severity]}</Badge>
        {item.since ? (
          <span className={classes.quiet}>
            <Ago at={item.since} />
          </span>
        ) : null}
        <Link className={classes.place} to={place.to} params={place.params as never} search={place.search as never}>
          {place.verb}
          <span className="sr-only">: {item.text}</span>
        </Link>
      </div>
      <p className={classes.itemText}>{item.text}</p>
      {item.next ? <p className={classes.quiet}>{item.next}</p> : null}
    </li>
  );
}

export function RollingOut() {
  const list = useQuery(activeRolloutsQuery);
  return (
    <Section
      title="Rolling out"
      flush
      aside={
        <TextLink to="/rollouts" className={classes.all}>
          All rollouts
        </TextLink>
      }
    >
      {list.isError ? <LoadError what="Rollouts" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? (
        <div className={classes.pad}>
          <Loading rows={3} />
        </div>
      ) : null}
      {list.data?.length === 0 ? (
        <Empty title="No rollout is under way">
          <TextLink to="/rollouts/new">Create a rollout</TextLink>
        </Empty>
      ) : null}
      <ul className={classes.list}>
        {list.data?.slice(0, SHOWN).map((r) => (
          <Rolling key={r.id} rollout={r} />
        ))}
      </ul>
    </Section>
  );
}

function Rolling({ rollout: r }: { rollout: Rollout }) {
  const done = r.pace?.done ?? 0;
  return (
    <li className={classes.item}>
      <div className={classes.itemHead}>
        <Link to="/rollouts/$rolloutId" params={{ rolloutId: r.id }} className={classes.name}>
          {r.plan.name}
        </Link>
        <span className="mono">{r.plan.version}</span>
        <span className={classes.push}>
          <RolloutBadge rollout={r} />
        </span>
      </div>
      <ProgressBar counts={r.counts} />
      <p className={classes.quiet}>
        {done.toLocaleString()} of {r.counts.total.toLocaleString()} hosts
        {r.pace?.per_minute ? ` · ${r.pace.per_minute < 10 ? r.pace.per_minute.toFixed(1) : Math.round(r.pace.per_minute).toLocaleString()} a minute` : ""}
        {r.pace?.done_about ? ` · done about ${hourMinute(r.pace.done_about)}` : ""}
        {r.state === "paused" && r.stop ? ` · ${closed(r.stop.text)}` : r.waiting?.[0] ? ` · ${closed(r.waiting[0].text)}` : ""}
      </p>
    </li>
  );
}

export function LastChanges() {
  const list = useQuery(trailQuery({ people: true }, 1, 10));
  const names = useRolloutNames();
  return (
    <Section
      title="Last changes"
      flush
      aside={
        <TextLink to="/audit" className={classes.all}>
          Audit trail
        </TextLink>
      }
    >
      {list.isError ? <LoadError what="The audit trail" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? (
        <div className={classes.pad}>
          <Loading rows={3} />
        </div>
      ) : null}
      {list.data?.items.length === 0 ? <Empty title="Nobody has changed anything yet" /> : null}
      <ol className={classes.list}>
        {list.data?.items.map((e) => (
          <li key={e.id} className={classes.change}>
            <span>
              {changeText(e.text)}
              {names.has(e.subject) && !e.text.includes(names.get(e.subject)!) ? (
                <>
                  {" "}
                  <SubjectLink entry={e}>{names.get(e.subject)}</SubjectLink>
                </>
              ) : null}
            </span>
            <span className={classes.quiet}>
              <Ago at={e.at} />
            </span>
          </li>
        ))}
      </ol>
    </Section>
  );
}
