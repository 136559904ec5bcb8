import { Text, TextInput } from "@mantine/core";
import { IconChevronDown, IconChevronRight, IconSearch } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useId, useMemo, useState } from "react";
import { previewConfigQuery } from "~/api/queries";
import type { Preview, PreviewTarget } from "~/api/types";
import { withConfig } from "~/util/rollout/preview";
import { closed } from "~/util/words";
import { Callout } from "../base/Callout";
import { LoadError, Loading, Section } from "../base/Page";
import classes from "./Preview.module.css";

/** A longer list is not read; a search finds the host in question. */
const HOSTS = 50;
/** From this many on a search box is shown. */
const SEARCH_FROM = 8;

/** The configuration files that the server renders for the targets, each with what would change. */
export function Configs({ preview: p }: { preview: Preview }) {
  const [search, setSearch] = useState("");
  const all = useMemo(() => withConfig(p), [p]);
  const found = useMemo(() => withConfig(p, search), [p, search]);
  if (all.length === 0) return null;
  return (
    <Section title="Configuration files" flush>
      {all.length >= SEARCH_FROM ? (
        <TextInput
          className={classes.search}
          aria-label="Search the hosts with configuration files"
          placeholder="Search by host or id"
          leftSection={<IconSearch size={14} aria-hidden />}
          value={search}
          onChange={(e) => setSearch(e.currentTarget.value)}
        />
      ) : null}
      {found.length === 0 ? (
        <div className={classes.foot} role="status">
          None of them matches “{search}”.
        </div>
      ) : null}
      {found.slice(0, HOSTS).map((t) => (
        <Host key={t.agent_id} preview={p} target={t} />
      ))}
      {found.length > HOSTS ? <div className={classes.foot}>and {(found.length - HOSTS).toLocaleString()} more: search for a host</div> : null}
    </Section>
  );
}

function Host({ preview, target: t }: { preview: Preview; target: PreviewTarget }) {
  const [open, setOpen] = useState(false);
  const id = useId();
  const Chevron = open ? IconChevronDown : IconChevronRight;
  return (
    <div>
      <button type="button" className={classes.head} aria-expanded={open} aria-controls={id} onClick={() => setOpen(!open)}>
        <Chevron size={16} aria-hidden /> Configuration of {t.hostname || t.agent_id}
      </button>
      {open ? (
        <div className={classes.config} id={id}>
          <Diff preview={preview} target={t} />
        </div>
      ) : null}
    </div>
  );
}

function Diff({ preview: p, target: t }: { preview: Preview; target: PreviewTarget }) {
  const config = useQuery(previewConfigQuery(p.rollout_id, p.hash, t.agent_id));
  if (config.isPending) return <Loading rows={2} />;
  if (config.isError) return <LoadError what="The configuration" error={config.error} onRetry={() => void config.refetch()} />;
  const { diff, error } = config.data;
  if (error) return <Callout kind="error">{closed(error)}</Callout>;
  if (!diff)
    return (
      <Text size="sm" c="dimmed">
        The host has these files already.
      </Text>
    );
  return (
    <pre className={classes.diff} tabIndex={0} role="group" aria-label={`What changes on ${t.hostname || t.agent_id}`}>
      {diff}
    </pre>
  );
}
