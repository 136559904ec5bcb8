import { Badge, Group, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconArrowBackUp, IconArrowLeft, IconCircleArrowUp } from "@tabler/icons-react";
import { getRouteApi } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { ApiError } from "~/api/client";
import { agentQuery } from "~/api/queries";
import type { Agent } from "~/api/types";
import { AgentComponents } from "~/components/AgentComponents";
import { AgentMenu } from "~/components/AgentMenu";
import { Empty, Facts, Loading, LoadError, PageHead, Panel } from "~/components/Blocks";
import { Callout } from "~/components/Callout";
import { CopyIcon } from "~/components/CopyBlock";
import { EventList } from "~/components/EventList";
import { Ago, useClock } from "~/components/Now";
import { PhaseStepper } from "~/components/PhaseStepper";
import { ReasonButton } from "~/components/ReasonButton";
import { RollbackDialog } from "~/components/RollbackDialog";
import { StatusBadge } from "~/components/StatusBadge";
import { TextLink } from "~/components/TextLink";
import { UnenrollDialog } from "~/components/UnenrollDialog";
import { UpgradeDialog } from "~/components/UpgradeDialog";
import { PhaseLine } from "~/components/VersionCell";
import { WatchPanel } from "~/components/WatchPanel";
import { WhyPanel } from "~/components/WhyPanel";
import { useNewestVersion, usePolicyName } from "~/hooks/useAgents";
import { useSeenEvents } from "~/hooks/useEvents";
import { whyNotRollback, whyNotUpgrade } from "~/util/allowed";
import { archOf, flatten, hostOf, osOf, osVersionOf } from "~/util/facts";
import { adviceFor, phaseOf, runsWords } from "~/util/phase";
import { backTo } from "~/util/rollback";
import { exact } from "~/util/time";
import { compareVersions } from "~/util/version";
import { sentence } from "~/util/words";
import classes from "./AgentPage.module.css";

const route = getRouteApi("/shell/agents/$agentId");

interface Upgrading {
  again?: { version: string; force: boolean };
}

export function AgentPage() {
  const { agentId } = route.useParams();
  const query = useQuery(agentQuery(agentId));
  const policyName = usePolicyName();
  const newest = useNewestVersion();
  const [upgrading, setUpgrading] = useState<Upgrading | null>(null);
  const [goingBack, setGoingBack] = useState(false);
  const [leaving, setLeaving] = useState(false);
  const agent = query.data;

  if (!agent) {
    return (
      <>
        <Back />
        <PageHead title="Agent" />
        {query.error instanceof ApiError && query.error.statusCode === 404 ? (
          <Panel><Empty title="There is no such agent">It may have been removed. Its id is <span className="mono">{agentId}</span>.</Empty></Panel>
        ) : query.isError ? <LoadError what="The agent" error={query.error} onRetry={() => void query.refetch()} /> : <Panel><Loading /></Panel>}
      </>
    );
  }

  const noUpgrade = whyNotUpgrade(agent);
  const newer = newest && compareVersions(newest, agent.agent.version) > 0;
  return (
    <>
      <Back />
      <PageHead
        title={hostOf(agent)}
        hint={
          <Group gap="xs" mt={4}>
            <StatusBadge status={agent.status} />
            <span>runs <span className="mono">{agent.agent.version}</span></span>
            {agent.tags.map((t) => <Badge key={t} size="sm" variant="default" radius="sm" tt="none" fw={500}>{t}</Badge>)}
          </Group>
        }
      >
        <ReasonButton
          leftSection={<IconCircleArrowUp size={16} aria-hidden />}
          variant={newer ? "filled" : "default"}
          reason={noUpgrade}
          onClick={() => setUpgrading({})}
        >
          Upgrade…
        </ReasonButton>
        <ReasonButton
          leftSection={<IconArrowBackUp size={16} aria-hidden />}
          variant="default"
          reason={whyNotRollback(agent)}
          onClick={() => setGoingBack(true)}
        >
          Roll back…
        </ReasonButton>
        <AgentMenu agent={agent} onUpgrade={() => setUpgrading({})} onRollback={() => setGoingBack(true)} onUnenroll={() => setLeaving(true)} />
      </PageHead>

      <Stack gap="md">
        {query.isError ? <LoadError what="The newest state of the agent" error={query.error} onRetry={() => void query.refetch()} /> : null}
        {agent.rollout ? (
          <Callout kind="info">
            The rollout <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: agent.rollout.id }} inherit fw={600} underline="always">{agent.rollout.name}</TextLink> includes this agent. Until it ends, only the rollout can upgrade the agent.
          </Callout>
        ) : null}
        <UpgradePanel agent={agent} onAgain={(again) => setUpgrading({ again })} />
        <WatchPanel agent={agent} />
        <div className={classes.columns}>
          <Stack gap="md">
            <Panel title="Agent"><AgentFacts agent={agent} policy={policyName(agent.policy_id)} /></Panel>
            <Panel title="Components" flush><AgentComponents agent={agent} /></Panel>
          </Stack>
          <Stack gap="md">
            <WhyPanel agentId={agent.id} host={hostOf(agent)} components={agent.components.flatMap((c) => c.name ?? [])} />
            <Panel title="Recent events" flush><EventList agent={agent} /></Panel>
            <Panel title="Metadata"><Metadata agent={agent} /></Panel>
          </Stack>
        </div>
      </Stack>

      {upgrading ? <UpgradeDialog chosen={[agent]} again={upgrading.again} onClose={() => setUpgrading(null)} /> : null}
      {goingBack ? <RollbackDialog chosen={[agent]} onClose={() => setGoingBack(false)} /> : null}
      {leaving ? <UnenrollDialog chosen={[agent]} onClose={() => setLeaving(false)} /> : null}
    </>
  );
}

function Back() {
  return (
    <TextLink to="/agents" size="sm" className={classes.back}>
      <IconArrowLeft size={14} aria-hidden /> Agents
    </TextLink>
  );
}

function UpgradePanel({ agent, onAgain }: { agent: Agent; onAgain: (again?: { version: string; force: boolean }) => void }) {
  const now = useClock();
  const seen = useSeenEvents(agent.id);
  const phase = phaseOf(agent, now);
  const details = agent.upgrade_details;

  if (phase.kind === "none") {
    if (!agent.upgraded_at) return null;
    // The version is installed, but the agent may report that it is unhealthy.
    const unwell = agent.status === "error" || agent.status === "degraded";
    return (
      <Callout kind={unwell ? "warning" : "good"}>
        The last {agent.upgrade_rollback ? "rollback" : "upgrade"} {unwell ? "ended" : "succeeded"} <Ago at={agent.upgraded_at} />: the host runs <span className="mono">{agent.agent.version}</span>{unwell ? ", but the agent reports that it is unhealthy." : "."}
      </Callout>
    );
  }

  const ended = phase.kind === "failed" || phase.kind === "rolled_back" ? phase : null;
  const noun = agent.upgrade_rollback ? "Rollback" : "Upgrade";
  const moving = phase.kind === "running" || phase.kind === "scheduled" ? phase : null;
  return (
    <Panel
      title={ended ? (phase.kind === "failed" ? `Last ${noun.toLowerCase()} failed` : `Last ${noun.toLowerCase()} was rolled back`) : `${noun}${phase.target ? ` to ${phase.target}` : ""}`}
      aside={details ? <span className={classes.word}>{details.state}</span> : null}
    >
      <Stack gap="md">
        {ended ? (
          <Callout
            kind={ended.kind === "failed" ? "error" : "warning"}
            icon={ended.kind === "failed" ? undefined : <IconArrowBackUp size={18} aria-hidden />}
            title={ended.kind === "failed" ? `${noun} to ${ended.target || "the new version"} failed` : `Rolled back from ${ended.target || "the new version"}`}
          >
            <Stack gap={6} align="flex-start">
              <span>{ended.reason ? sentence(ended.reason) : "The agent reported no reason."}</span>
              {details?.metadata?.reason_code ? <span>Reason code <span className="mono">{details.metadata.reason_code}</span></span> : null}
              <span>{runsWords(agent, ended)} {adviceFor(details?.metadata?.reason_code)}</span>
              {agent.upgrade_rollback ? null : (
                <ReasonButton
                  size="xs"
                  variant="default"
                  mt={4}
                  reason={whyNotUpgrade(agent)}
                  onClick={() => onAgain(ended.target ? { version: ended.target, force: ended.kind === "rolled_back" } : undefined)}
                >
                  Upgrade again…
                </ReasonButton>
              )}
            </Stack>
          </Callout>
        ) : null}
        {moving ? (
          <div>
            <PhaseLine phase={{ ...moving, warning: undefined }} />
            {/* Without the percentage: a screen reader should announce phases, not every step of a download. */}
            <div className="sr-only" aria-live="polite">{moving.text.replace(/ \d+ %.*$/, "")}</div>
            {moving.warning ? (
              <Callout kind="warning">{moving.warning}</Callout>
            ) : null}
          </div>
        ) : null}
        {details ? <PhaseStepper details={details} startedAt={agent.upgrade_started_at} seen={seen} /> : null}
        {details ? (
          <Text size="xs" c="dimmed">
            Action <TextLink to="/activity" hash={details.action_id} inherit className="mono">{details.action_id}</TextLink>.
            {" "}Times are when this browser received the start of a phase.
          </Text>
        ) : null}
      </Stack>
    </Panel>
  );
}

function AgentFacts({ agent, policy }: { agent: Agent; policy: string }) {
  return (
    <Facts rows={[
      ["Agent id", <Group key="id" gap={4} wrap="nowrap"><span className="mono">{agent.id}</span><CopyIcon text={agent.id} label="Copy the agent id" /></Group>],
      ["Status", <span key="s" className="mono">{agent.status}</span>],
      ["Last check-in", <Ago key="l" at={agent.last_checkin} />],
      ["Check-in message", [agent.last_checkin_status, agent.last_checkin_message].filter(Boolean).join(": ")],
      ["Version", <span key="v" className="mono">{agent.agent.version}</span>],
      ["Desired version", agent.desired_version ? <span key="dv"><span className="mono">{agent.desired_version}</span>{agent.desired_version === agent.agent.version ? "" : ", not yet"}</span> : ""],
      ["Last healthy version", agent.last_healthy_version ? <span key="lh" className="mono">{agent.last_healthy_version}</span> : "no version yet"],
      ["Can roll back to", backTo(agent)],
      ...(agent.staged_versions ? [["Staged", agent.staged_versions.length > 0 ? <span key="sv" className="mono">{agent.staged_versions.join(", ")}</span> : "nothing"] as [string, ReactNode]] : []),
      ["Policy", <span key="p"><TextLink to="/policies" hash={`policy-${agent.policy_id}`} inherit underline="always">{policy}</TextLink>{agent.policy_revision ? ` (revision ${agent.policy_revision})` : ""}</span>],
      ["Operating system", [osOf(agent), osVersionOf(agent)].filter(Boolean).join(" ")],
      ["Architecture", archOf(agent)],
      ["Enrolled", <time key="e" dateTime={agent.enrolled_at}>{exact(agent.enrolled_at)}</time>],
      ...(agent.upgrade_started_at ? [["Upgrade started", exact(agent.upgrade_started_at)] as [string, string]] : []),
      ["Last upgraded", agent.upgraded_at ? exact(agent.upgraded_at) : "never"],
      ...(agent.unenrolled_at ? [["Unenrolled", exact(agent.unenrolled_at)] as [string, string]] : []),
      ...(agent.unenrolled_reason ? [["Unenrolled because", agent.unenrolled_reason] as [string, string]] : []),
    ]} />
  );
}

function Metadata({ agent }: { agent: Agent }) {
  const rows = [...flatten(agent.local_metadata), ...flatten(agent.user_provided_metadata, "user")];
  if (rows.length === 0) return <Text size="sm" c="dimmed">The agent has not sent any yet.</Text>;
  return <Facts rows={rows.map(([k, v]) => [k, <span key={k} className="mono">{v}</span>])} />;
}
