/** Why an agent, or a component of it, runs its version: now, live, or at a time in the past. */
import { ActionIcon, Select, TextInput, Tooltip } from "@mantine/core";
import { IconHistory, IconX } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { whyQuery } from "~/api/queries";
import { LoadError, Loading, Section } from "~/components/base/Page";
import { Prose } from "~/components/base/Prose";
import { TextLink } from "~/components/base/TextLink";
import { Ago } from "~/components/base/Time";
import { chainOf } from "~/util/agent/why";
import { withoutCommands, withoutIds } from "~/util/prose";
import { codeText } from "~/util/rollout/rolloutText";
import { exactWithZone } from "~/util/time";
import { closed, sentence, sentenceAbout } from "~/util/words";
import { Until } from "./Until";
import classes from "./Why.module.css";

interface Props {
  agentId: string;
  host: string;
  /** Names of the components that can be asked about too. */
  components: readonly string[];
  component?: string;
  at?: string;
  onChange: (change: { why?: string; at?: string }) => void;
}

export function Why({ agentId, host, components, component, at, onChange }: Props) {
  const why = useQuery(whyQuery(agentId, at, component));
  const e = why.data;
  const chain = e ? chainOf(e) : [];
  return (
    <Section title={at ? `Why, at ${exactWithZone(at)}` : "Why"} aside={<Controls components={components} component={component} at={at} onChange={onChange} />}>
      {why.isError ? <LoadError what="The reasons" error={why.error} onRetry={() => void why.refetch()} /> : null}
      {why.isPending ? <Loading rows={2} /> : null}
      {e && !why.isError ? (
        <div className={classes.why} role="status">
          <p className={classes.summary}>
            <Prose>{closed(withoutIds(e.summary))}</Prose>
          </p>
          {chain.length > 0 ? (
            <ol className={classes.chain} aria-label="Reasons, broadest first">
              {chain.map((c, i) => (
                <li key={`${i} ${c.code}`}>
                  <Prose>{sentenceAbout(withoutIds(c.text), host)}</Prose>
                  <span className={classes.sub}>
                    {c.code ? <span title={c.code}>{codeText(c.code)}</span> : null}
                    {c.since ? (
                      <span>
                        since <Ago at={c.since} />
                      </span>
                    ) : null}
                    {c.until && !at ? (
                      <span>
                        <Until at={c.until} /> left
                      </span>
                    ) : null}
                  </span>
                </li>
              ))}
            </ol>
          ) : null}
          {e.next ? (
            <p className={classes.next}>
              <b>Next:</b> <Prose>{sentence(withoutCommands(withoutIds(e.next)))}</Prose>
            </p>
          ) : null}
          {e.rollout_id ? (
            <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: e.rollout_id }} size="sm" underline="always">
              Open the rollout {e.rollout_name || ""}
            </TextLink>
          ) : null}
        </div>
      ) : null}
    </Section>
  );
}

function Controls({ components, component, at, onChange }: Pick<Props, "components" | "component" | "at" | "onChange">) {
  const [asking, setAsking] = useState(false);
  return (
    <div className={classes.controls}>
      {components.length > 0 ? (
        <Select
          w={152}
          aria-label="Of this component"
          allowDeselect={false}
          value={component ?? ""}
          onChange={(v) => onChange({ why: v || undefined, at })}
          data={[{ value: "", label: "The agent itself" }, ...components.map((c) => ({ value: c, label: c }))]}
        />
      ) : null}
      {asking ? (
        <TextInput
          type="datetime-local"
          aria-label="At this time"
          autoFocus
          onChange={(ev) => {
            const time = Date.parse(ev.currentTarget.value);
            if (!Number.isNaN(time)) onChange({ why: component, at: new Date(time).toISOString() });
          }}
        />
      ) : null}
      {asking || at ? (
        <Tooltip label="Back to now">
          <ActionIcon
            aria-label="Back to now"
            onClick={() => {
              setAsking(false);
              onChange({ why: component });
            }}
          >
            <IconX size={16} aria-hidden />
          </ActionIcon>
        </Tooltip>
      ) : (
        <Tooltip label="Ask about an earlier time">
          <ActionIcon aria-label="Ask about an earlier time" onClick={() => setAsking(true)}>
            <IconHistory size={16} aria-hidden />
          </ActionIcon>
        </Tooltip>
      )}
    </div>
  );
}
