import { Group, Select, Stack, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { whyQuery } from "~/api/queries";
import { codeText } from "~/util/rolloutText";
import { exact } from "~/util/time";
import { closed, sentence, sentenceAbout } from "~/util/words";
import { Loading, LoadError, Panel } from "./Blocks";
import { Ago } from "./Now";
import { Countdown } from "./rollout/Waits";
import { TextLink } from "./TextLink";
import classes from "./rollout/Rollout.module.css";

interface Props {
  agentId: string;
  host: string;
  /** Names of the components that can be asked about too. */
  components: readonly string[];
}

/** Why an agent, or a component of it, runs its version and not that of a rollout: now, or at a time in the past. */
export function WhyPanel({ agentId, host, components }: Props) {
  const [component, setComponent] = useState<string | null>(null);
  const [local, setLocal] = useState("");
  const then = local === "" || Number.isNaN(Date.parse(local)) ? undefined : new Date(local).toISOString();
  const why = useQuery(whyQuery(agentId, then, component ?? undefined));
  const e = why.data;
  // Omits the rollout's id: the link below leads to it.
  const plain = (text: string) => (e?.rollout_id ? text.replaceAll(` (${e.rollout_id})`, "") : text);
  return (
    <Panel
      title="Why (not)?"
      aside={
        <Group gap={6}>
          {components.length > 0 ? (
            <Select size="xs" w={150} clearable placeholder="The agent itself" aria-label="Of this component" data={components} value={component} onChange={setComponent} />
          ) : null}
          <TextInput size="xs" type="datetime-local" aria-label="At this time" value={local} onChange={(ev) => setLocal(ev.currentTarget.value)} />
          {local ? <button type="button" className={classes.goto} onClick={() => setLocal("")}>Now</button> : null}
        </Group>
      }
    >
      {why.isError ? <LoadError what="The reasons" error={why.error} onRetry={() => void why.refetch()} /> : null}
      {why.isPending ? <Loading rows={2} /> : null}
      {e && !why.isError ? (
        <Stack gap="sm" role="status">
          <Text size="sm" fw={600}>{then ? `${exact(e.at)}: ` : ""}{closed(plain(e.summary))}</Text>
          {e.chain.length > 0 ? (
            <ol className={classes.chain} aria-label="Reasons, broadest first">
              {e.chain.map((c, i) => (
                <li key={`${i} ${c.code}`} className={classes.link}>
                  <div>
                    {sentenceAbout(plain(c.text), host)}
                    <div className={classes.sub}>
                      {c.code ? <>{codeText(c.code)} <span className="mono">{c.code}</span> </> : null}
                      {c.since ? <>since <Ago at={c.since} /></> : null}
                      {c.until && !then ? <> · <Countdown until={c.until} /> left</> : null}
                    </div>
                  </div>
                </li>
              ))}
            </ol>
          ) : null}
          {e.next ? <Text size="sm">{sentence(e.next)}</Text> : null}
          {e.rollout_id ? <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: e.rollout_id }} size="sm">Show the rollout “{e.rollout_name || e.rollout_id}”</TextLink> : null}
        </Stack>
      ) : null}
    </Panel>
  );
}
