import { TextInput } from "@mantine/core";
import { IconChevronDown, IconChevronRight, IconSearch } from "@tabler/icons-react";
import { Link } from "@tanstack/react-router";
import { useId, useMemo, useState } from "react";
import type { Preview } from "~/api/types";
import { wontOf } from "~/util/plan/planPreview";
import { groupSkipped, type SkipGroup } from "~/util/rollout/preview";
import { plural, sentence } from "~/util/words";
import { Section } from "../base/Page";
import classes from "./Preview.module.css";

/** A longer list is not read; a search finds the agent in question. */
const LINES = 200;
/** From this many on a search box is shown. */
const SEARCH_FROM = 8;

/** Hosts that match but are left out, each with its reason. */
export function Skipped({ preview: p }: { preview: Preview }) {
  const skipped = p.skipped;
  const [search, setSearch] = useState("");
  const groups = useMemo(() => groupSkipped(skipped, search), [skipped, search]);
  if (skipped.length === 0) return null;
  return (
    <Section title={`Left out: ${plural(wontOf(p), "host")}`} flush>
      {skipped.length >= SEARCH_FROM ? (
        <TextInput
          className={classes.search}
          aria-label="Search the hosts left out"
          placeholder="Search by host, id, version or reason"
          leftSection={<IconSearch size={14} aria-hidden />}
          value={search}
          onChange={(e) => setSearch(e.currentTarget.value)}
        />
      ) : null}
      {groups.length === 0 ? (
        <div className={classes.foot} role="status">
          None of them matches “{search}”.
        </div>
      ) : null}
      {groups.map((g) => (
        <Group key={g.code} group={g} open={search !== ""} />
      ))}
      {skipped.length < wontOf(p) ? (
        <div className={classes.foot}>The first {skipped.length.toLocaleString()} are listed; the counts of the preview are of all.</div>
      ) : null}
    </Section>
  );
}

function Group({ group: g, open }: { group: SkipGroup; open: boolean }) {
  const [shown, setShown] = useState(false);
  const id = useId();
  const all = shown || open;
  const Chevron = all ? IconChevronDown : IconChevronRight;
  return (
    <div>
      <button type="button" className={classes.head} aria-expanded={all} aria-controls={id} onClick={() => setShown(!shown)}>
        <Chevron size={16} aria-hidden /> {g.title} <b>{g.agents.length.toLocaleString()}</b>
      </button>
      {all ? (
        <ul className={classes.hosts} id={id}>
          {g.agents.slice(0, LINES).map((a) => (
            <li key={a.agent_id}>
              <Link to="/agents/$agentId" params={{ agentId: a.agent_id }}>
                {a.hostname || a.agent_id}
              </Link>{" "}
              <span className="mono">{a.version}</span> <span>{sentence(a.text)}</span>
            </li>
          ))}
          {g.agents.length > LINES ? (
            <li>
              <span>and {(g.agents.length - LINES).toLocaleString()} more</span>
            </li>
          ) : null}
        </ul>
      ) : null}
    </div>
  );
}
