import { Text } from "@mantine/core";
import type { Agent } from "~/api/types";
import { useSeenEvents } from "~/hooks/useEvents";
import { eventText, lastingEvents, mergeEvents } from "~/util/eventText";
import { Ago } from "./Now";
import classes from "./EventList.module.css";

/** Enough for the last upgrades without scrolling past the rest of the page. */
const SHOWN = 30;

export function EventList({ agent }: { agent: Agent }) {
  const seen = useSeenEvents(agent.id);
  const events = mergeEvents(seen, lastingEvents(agent)).slice(0, SHOWN);
  return (
    <>
      <ol className={classes.list} tabIndex={0} aria-label="Recent events, newest first">
        {events.map((e) => (
          <li key={e.seq} className={classes.event} data-bad={e.state === "UPG_FAILED" || e.state === "UPG_ROLLBACK" || undefined}>
            <span className={classes.text}>{eventText(e)}{e.actor ? <span className={classes.actor}> by {e.actor}</span> : null}</span>
            <span className={classes.at}><Ago at={e.at} /></span>
          </li>
        ))}
      </ol>
      <Text size="xs" c="dimmed" px="md" py={8}>From the agent's record and from the events this browser has received.</Text>
    </>
  );
}
