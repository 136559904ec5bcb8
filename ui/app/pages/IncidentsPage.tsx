import { Group, Stack, Text } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { IconMoodCheck } from "@tabler/icons-react";
import { useState } from "react";
import { incidentsQuery, keys } from "~/api/queries";
import { ackIncident, resolveIncident } from "~/api/rollouts";
import type { Incident } from "~/api/types";
import { Empty, Loading, LoadError, PageHead, Panel } from "~/components/Blocks";
import { ConfirmDialog } from "~/components/ConfirmDialog";
import { Ago } from "~/components/Now";
import { ReasonButton } from "~/components/ReasonButton";
import { WhyField } from "~/components/rollout/CommandDialog";
import { TextLink } from "~/components/TextLink";
import { incidentKind, incidentLabel, sortIncidents, whyNotAck, whyNotResolve } from "~/util/incident";
import { plural, sentence } from "~/util/words";
import board from "~/components/rollout/Rollout.module.css";
import classes from "./RolloutsPage.module.css";

type Word = "ack" | "resolve";

export function IncidentsPage() {
  const list = useQuery(incidentsQuery);
  const [asked, setAsked] = useState<{ incident: Incident; word: Word } | null>(null);
  const all = sortIncidents(list.data?.items ?? []);
  const open = all.filter((i) => i.state === "open").length;
  return (
    <>
      <PageHead title="Incidents" hint={list.data ? (open > 0 ? `${plural(open, "incident")} ${open === 1 ? "needs" : "need"} an operator` : "No open incidents") : "Problems that need an operator"} />
      {list.isError ? <LoadError what="The incidents" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? <Panel><Loading /></Panel> : null}
      {list.data && all.length === 0 ? (
        <Panel><Empty icon={<IconMoodCheck size={36} stroke={1.5} aria-hidden />} title="No incident">A host whose upgrade and rollback both failed appears here, with what to do.</Empty></Panel>
      ) : null}
      {all.length > 0 ? (
        <ul className={classes.list} aria-label="Incidents">
          {all.map((i) => <Card key={i.id} incident={i} onAsk={(word) => setAsked({ incident: i, word })} />)}
        </ul>
      ) : null}
      {asked ? <WordDialog {...asked} onClose={() => setAsked(null)} /> : null}
    </>
  );
}

function Card({ incident: i, onAsk }: { incident: Incident; onAsk: (word: Word) => void }) {
  return (
    <li className={classes.card} aria-label={i.title}>
      <div className={classes.head}>
        <div className={classes.title}>
          <Text fw={600}>{i.title}</Text>
          <Text size="xs" c="dimmed">
            {incidentKind[i.category] ?? i.category} · opened <Ago at={i.opened_at} />{i.count > 1 ? `, ${i.count} times` : ""}
            {i.agent_id ? <> · <TextLink to="/agents/$agentId" params={{ agentId: i.agent_id }} inherit underline="always">{i.hostname || i.agent_id}</TextLink></> : null}
            {i.rollout_id ? <> · <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: i.rollout_id }} inherit underline="always">its rollout</TextLink></> : null}
          </Text>
        </div>
        <Group gap={6} wrap="nowrap">
          <span className={board.badge} data-tone={i.severity === "critical" ? "bad" : "warn"}>{i.severity === "critical" ? "Critical" : "Warning"}</span>
          <span className={board.badge} data-tone={i.state === "open" ? "bad" : i.state === "resolved" ? "good" : "warn"}>{incidentLabel[i.state] ?? i.state}</span>
        </Group>
      </div>
      <Stack gap={6} mt={8}>
        <Text size="sm">{sentence(i.text)}</Text>
        {i.recovery_plan ? <div className={board.quote}><b>Recovery plan.</b> {i.recovery_plan}</div> : null}
        {i.acked ? <Text size="xs" c="dimmed">Acknowledged by {i.acked.by} <Ago at={i.acked.at} />{i.acked.why ? `: “${i.acked.why}”` : "."}</Text> : null}
        {i.resolved ? <Text size="xs" c="dimmed">Resolved by {i.resolved.by} <Ago at={i.resolved.at} />{i.resolved.why ? `: “${i.resolved.why}”` : "."}</Text> : null}
        <Group gap={6}>
          <ReasonButton size="xs" variant="default" reason={whyNotAck(i)} onClick={() => onAsk("ack")}>Acknowledge…</ReasonButton>
          <ReasonButton size="xs" variant="default" reason={whyNotResolve(i)} onClick={() => onAsk("resolve")}>Resolve…</ReasonButton>
        </Group>
      </Stack>
    </li>
  );
}

function WordDialog({ incident: i, word, onClose }: { incident: Incident; word: Word; onClose: () => void }) {
  const client = useQueryClient();
  const [why, setWhy] = useState("");
  const say = useMutation({
    mutationFn: () => (word === "ack" ? ackIncident : resolveIncident)(i.id, why.trim()),
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: keys.incidents });
      onClose();
    },
  });
  return (
    <ConfirmDialog
      title={word === "ack" ? "Acknowledge the incident?" : "Resolve the incident?"}
      confirm={word === "ack" ? "Acknowledge" : "Resolve"}
      keep="Dismiss"
      harmless
      busy={say.isPending}
      error={say.error}
      onConfirm={() => say.mutate()}
      onClose={onClose}
    >
      <Stack gap="sm">
        <span>{word === "ack" ? "Others see that you work on it." : "If the same problem occurs again, the incident opens again."}</span>
        <WhyField value={why} onChange={setWhy} />
      </Stack>
    </ConfirmDialog>
  );
}
