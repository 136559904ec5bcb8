/** The tags of an agent, which are edited in place. */
import { Button, TagsInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { setTags } from "~/api/agent";
import { messageOf } from "~/api/client";
import { keys } from "~/api/queries";
import type { Agent } from "~/api/types";
import { Callout } from "~/components/base/Callout";
import { Section } from "~/components/base/Page";
import { ReasonButton } from "~/components/base/ReasonButton";
import { TextLink } from "~/components/base/TextLink";
import { quoted } from "~/util/kql";
import classes from "./Side.module.css";

/** The server accepts this many at a time. */
const MOST = 10;

export function Tags({ agent }: { agent: Agent }) {
  const [editing, setEditing] = useState(false);
  const refused = agent.commands?.find((c) => c.name === "tag" && !c.allowed)?.reason ?? null;
  return (
    <Section
      title="Tags"
      plain
      aside={
        editing ? null : (
          <ReasonButton size="compact-sm" variant="subtle" color="gray" reason={refused} onClick={() => setEditing(true)}>
            Edit tags
          </ReasonButton>
        )
      }
    >
      {editing ? (
        <Editor agent={agent} onClose={() => setEditing(false)} />
      ) : agent.tags.length > 0 ? (
        <ul className={classes.tags} aria-label="Tags">
          {agent.tags.map((t) => (
            <li key={t}>
              <TextLink to="/agents" search={{ kuery: `tag: ${quoted(t)}` }} className={classes.tag} title={`Show the hosts with the tag ${t}`}>
                {t}
              </TextLink>
            </li>
          ))}
        </ul>
      ) : (
        <p className={classes.none}>No tags. Rollouts and queries choose hosts by them.</p>
      )}
    </Section>
  );
}

function Editor({ agent, onClose }: { agent: Agent; onClose: () => void }) {
  const client = useQueryClient();
  const [tags, setDraft] = useState(agent.tags);
  const save = useMutation({
    mutationFn: () => setTags(agent.id, tags),
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: keys.agents });
      onClose();
    },
  });
  return (
    <form
      className={classes.form}
      onSubmit={(e) => {
        e.preventDefault();
        save.mutate();
      }}
    >
      <TagsInput
        aria-label="Tags"
        size="xs"
        data-autofocus
        autoFocus
        maxTags={MOST}
        value={tags}
        onChange={setDraft}
        placeholder="name, or name=value"
        description={`Enter adds a tag. At most ${MOST}.`}
      />
      {save.error ? <Callout kind="error">{messageOf(save.error)}</Callout> : null}
      <div className={classes.buttons}>
        <Button variant="default" onClick={onClose}>
          Cancel
        </Button>
        <Button type="submit" loading={save.isPending}>
          Save tags
        </Button>
      </div>
    </form>
  );
}
