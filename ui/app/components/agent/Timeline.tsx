/** What happened to an agent and its components, newest first, as the server has recorded it. */
import { Button, Select } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { timelineQuery } from "~/api/agents";
import { useClock } from "~/components/base/Now";
import { Empty, LoadError, Loading, Section } from "~/components/base/Page";
import { byDay } from "~/util/agent/timeline";
import classes from "./Timeline.module.css";
import { TimelineItem } from "./TimelineItem";

interface Props {
  agentId: string;
  /** The names of its components. */
  components: readonly string[];
  /** Whose entries are shown: a component's, "agent" for the agent itself; absent: all. */
  component?: string;
  onComponent: (component: string | undefined) => void;
  /** The entry that is open. */
  open?: string;
  onOpen: (entry: string | undefined) => void;
}

export function Timeline({ agentId, components, component, onComponent, open, onOpen }: Props) {
  const now = useClock();
  const query = useInfiniteQuery(timelineQuery(agentId, component));
  const entries = query.data?.pages.flatMap((p) => p.items) ?? [];
  const filter =
    components.length > 0 ? (
      <Select
        aria-label="Of what"
        w={168}
        allowDeselect={false}
        value={component ?? ""}
        onChange={(v) => onComponent(v || undefined)}
        data={[{ value: "", label: "Everything" }, { value: "agent", label: "The agent itself" }, ...components.map((c) => ({ value: c, label: c }))]}
      />
    ) : null;
  return (
    <Section title="Timeline" aside={filter} plain>
      {query.isError ? <LoadError what="The timeline" error={query.error} onRetry={() => void query.refetch()} /> : null}
      {query.isPending ? <Loading rows={4} /> : null}
      {query.isSuccess && entries.length === 0 ? (
        <Empty title="Nothing is recorded">
          {component ? "Nothing has happened to it yet, or the retention has removed it." : "Upgrades, rollbacks and changes appear here."}
        </Empty>
      ) : null}
      {byDay(entries, now).map(({ day, items }) => (
        <section key={day} className={classes.day} aria-label={day}>
          <h3 className={classes.dayTitle}>{day}</h3>
          <ol className={classes.list}>
            {items.map((e) => (
              <TimelineItem key={e.id} entry={e} open={open === e.id} onOpen={() => onOpen(open === e.id ? undefined : e.id)} />
            ))}
          </ol>
        </section>
      ))}
      {query.hasNextPage ? (
        <Button variant="default" loading={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
          Show older entries
        </Button>
      ) : null}
    </Section>
  );
}
