/** Who did what to a rollout, and why, newest first. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { trailQuery } from "~/api/overview";
import type { AuditEntry } from "~/api/types";
import { closed } from "~/util/words";
import { LoadError, Loading, Section } from "../base/Page";
import { TextLink } from "../base/TextLink";
import { When } from "../base/Time";
import classes from "./Board.module.css";

/** As many as fit beside the facts of the plan. */
const SHOWN = 12;

export function RolloutTrail({ rolloutId }: { rolloutId: string }) {
  const [steps, setSteps] = useState(false);
  const list = useQuery(trailQuery({ subject: rolloutId, people: !steps || undefined }, 1, SHOWN));
  return (
    <Section
      title="Who did what"
      plain
      aside={
        <button type="button" className={classes.textButton} aria-pressed={steps} onClick={() => setSteps(!steps)}>
          {steps ? "Hide the server’s steps" : "Show the server’s steps"}
        </button>
      }
    >
      {list.isError ? <LoadError what="The audit trail" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? <Loading rows={3} /> : null}
      {list.data?.items.length === 0 ? <span className={classes.faint}>Nothing yet.</span> : null}
      <ol className={classes.trail}>
        {list.data?.items.map((e) => (
          <Entry key={e.id} entry={e} />
        ))}
      </ol>
      {list.data && list.data.total > list.data.items.length ? (
        <TextLink to="/audit" search={{ subject: rolloutId, people: !steps || undefined }} size="sm">
          Show all {list.data.total.toLocaleString()} entries
        </TextLink>
      ) : null}
    </Section>
  );
}

function Entry({ entry: e }: { entry: AuditEntry }) {
  return (
    <li className={classes.entry}>
      <span className={classes.entryTime}>
        <When at={e.at} />
      </span>
      <span>
        {closed(e.text)}
        {e.why ? <q className={classes.why}>{e.why}</q> : null}
      </span>
    </li>
  );
}
