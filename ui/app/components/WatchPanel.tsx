import { Stack, Text } from "@mantine/core";
import type { Agent } from "~/api/types";
import { diagnosisTitle, watchedAgentText } from "~/util/watch";
import { sentence } from "~/util/words";
import { Facts, Panel } from "./Blocks";
import { Callout } from "./Callout";
import { Ago } from "./Now";

/** What the watcher on the host sees while it judges a version, and what to make of a silent agent. */
export function WatchPanel({ agent }: { agent: Agent }) {
  const watch = agent.watch;
  if (!watch) return null;
  const judging = watch.stage === "watching" || watch.stage === "rolling_back";
  if (!judging && !watch.diagnosis) return null;
  return (
    <Panel title="Watcher on the host" aside={<span className="mono">{watch.stage}</span>}>
      <Stack gap="sm">
        {watch.diagnosis ? (
          <Callout kind={watch.diagnosis.code === "rollback_failed" ? "error" : "warning"} title={diagnosisTitle(watch.diagnosis.code)}>
            {sentence(watch.diagnosis.text)}
          </Callout>
        ) : null}
        <Facts rows={[
          ["Judges", <span key="j"><span className="mono">{watch.to}</span>, came from <span className="mono">{watch.from}</span></span>],
          ["Sees the agent", watchedAgentText(watch)],
          ...(watch.waiting ? [["Waits", watch.waiting] as [string, string]] : []),
          ["Reason", watch.reason ? <span key="r">{sentence(watch.reason.text)} <span className="mono">{watch.reason.code}</span></span> : "none so far"],
          ["Heard of", <Ago key="h" at={watch.received_at} />],
        ]} />
        <Text size="xs" c="dimmed">It speaks with a key of its own, so it is heard also when the agent is not.</Text>
      </Stack>
    </Panel>
  );
}
