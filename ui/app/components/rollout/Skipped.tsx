import { TextInput } from "@mantine/core";
import { IconChevronDown, IconChevronRight, IconSearch } from "@tabler/icons-react";
import { Link } from "@tanstack/react-router";
import { useId, useMemo, useState } from "react";
import type { SkippedAgent } from "~/api/types";
import { groupSkipped, type SkipGroup } from "~/util/preview";
import { plural, sentence } from "~/util/words";
import { Panel } from "../Blocks";
import classes from "./Rollout.module.css";

/** A longer list is not read; a search finds the agent in question. */
const LINES = 200;
/** From this many on a search box is shown. */
const SEARCH_FROM = 8;

/** Agents that match but are left out, each with its reason. */
export function Skipped({ skipped }: { skipped: SkippedAgent[] }) {
  const [search, setSearch] = useState("");
  const groups = useMemo(() => groupSkipped(skipped, search), [skipped, search]);
  if (skipped.length === 0) return null;
  return (
    <Panel title={`Left out: ${plural(skipped.length, "agent")}`} flush>
      {skipped.length >= SEARCH_FROM ? (
        <TextInput
          p="sm"
          size="xs"
          aria-label="Search the agents left out"
          placeholder="Search by host, id, version or reason"
          leftSection={<IconSearch size={14} aria-hidden />}
          value={search}
          onChange={(e) => setSearch(e.currentTarget.value)}
        />
      ) : null}
      {groups.length === 0 ? <div className={classes.foot} role="status">None of them matches “{search}”.</div> : null}
      {groups.map((g) => <Group key={g.code} group={g} open={search !== ""} />)}
    </Panel>
  );
}

function Group({ group: g, open }: { group: SkipGroup; open: boolean }) {
  const [shown, setShown] = useState(false);
  const id = useId();
  const all = shown || open;
  const Chevron = all ? IconChevronDown : IconChevronRight;
  return (
    <div>
      <button type="button" className={classes.skipHead} aria-expanded={all} aria-controls={id} onClick={() => setShown(!shown)}>
        <Chevron size={16} aria-hidden /> {g.title} <b>{g.agents.length.toLocaleString()}</b>
      </button>
      {all ? (
        <ul className={classes.skipped} id={id}>
          {g.agents.slice(0, LINES).map((a) => (
            <li key={a.agent_id}>
              <Link to="/agents/$agentId" params={{ agentId: a.agent_id }}>{a.hostname || a.agent_id}</Link> <span className="mono">{a.version}</span> <span>{sentence(a.text)}</span>
            </li>
          ))}
          {g.agents.length > LINES ? <li><span>and {(g.agents.length - LINES).toLocaleString()} more</span></li> : null}
        </ul>
      ) : null}
    </div>
  );
}
