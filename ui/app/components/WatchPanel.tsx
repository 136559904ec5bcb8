import { Stack, Text } from "@mantine/core";
import type { Agent } from "~/api/types";
import { diagnosisTitle, watchedAgentText } from "~/util/watch";
import { sentence } from "~/util/words";
import { Facts, Panel } from "./Blocks";
import { Callout } from "./Callout";
import { Ago } from "./Now";

/** The last report of the watcher on the host, and the diagnosis of a silent agent. */
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
          ["Watches", <span key="j"><span className="mono">{watch.to}</span>, upgraded from <span className="mono">{watch.from}</span></span>],
          ["Agent", watchedAgentText(watch)],
          ...(watch.waiting ? [["Waiting for", watch.waiting] as [string, string]] : []),
          ["Reason", watch.reason ? <span key="r">{sentence(watch.reason.text)} <span className="mono">{watch.reason.code}</span></span> : "none yet"],
          ["Last report", <Ago key="h" at={watch.received_at} />],
        ]} />
        <Text size="xs" c="dimmed">The watcher has its own key, so it can report when the agent cannot.</Text>
      </Stack>
    </Panel>
  );
}
