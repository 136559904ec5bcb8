/** One host: how it is, why it runs its version, what happened to it, and what can be ordered. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";
import { ApiError } from "~/api/client";
import { agentQuery } from "~/api/queries";
import type { Agent } from "~/api/types";
import { AgentFacts } from "~/components/agent/AgentFacts";
import { Components } from "~/components/agent/Components";
import { Diagnostics } from "~/components/agent/Diagnostics";
import { AgentDialog } from "~/components/agent/Dialogs";
import { RawDocument } from "~/components/agent/RawDocument";
import { Tags } from "~/components/agent/Tags";
import { Timeline } from "~/components/agent/Timeline";
import { UpgradeNow } from "~/components/agent/UpgradeNow";
import { Versions } from "~/components/agent/Versions";
import { Why } from "~/components/agent/Why";
import { HealthBadge } from "~/components/base/Badge";
import { Callout } from "~/components/base/Callout";
import { CommandBar } from "~/components/base/CommandBar";
import { Empty, Line, LoadError, Loading, PageHead } from "~/components/base/Page";
import { TextLink } from "~/components/base/TextLink";
import { Ago } from "~/components/base/Time";
import { usePolicyName } from "~/hooks/useAgents";
import type { AgentSearch } from "~/util/agent/agentSearch";
import { hostOf } from "~/util/agents/facts";
import { compact } from "~/util/searchParts";
import { withForward } from "~/util/upgrade/rollback";
import { upgradeToShow } from "~/util/upgrade/upgradeNow";
import { sentence } from "~/util/words";
import classes from "./AgentPage.module.css";

const route = getRouteApi("/shell/agents/$agentId");
const CRUMBS = [{ label: "Agents", to: "/agents" }] as const;

const WORDS = {
  upgrade: "Upgrade host…",
  rollback: "Roll back…",
  forward: "Go forward to the version that was left…",
  stage: "Stage a version…",
  diagnostics: "Request diagnostics…",
  reassign: "Reassign to another policy…",
  unenroll: "Unenrol host…",
};

export function AgentPage() {
  const { agentId } = route.useParams();
  const query = useQuery(agentQuery(agentId));
  if (query.data) return <Host agent={query.data} error={query.isError ? query.error : null} onRetry={() => void query.refetch()} />;
  const gone = query.error instanceof ApiError && query.error.statusCode === 404;
  return (
    <>
      <PageHead title="Agent" crumbs={CRUMBS} />
      {gone ? (
        <Empty title="There is no such agent">
          It may have been removed. Its id is <span className="mono">{agentId}</span>.
        </Empty>
      ) : query.isError ? (
        <LoadError what="The agent" error={query.error} onRetry={() => void query.refetch()} />
      ) : (
        <Loading rows={8} />
      )}
    </>
  );
}

function Host({ agent, error, onRetry }: { agent: Agent; error: unknown; onRetry: () => void }) {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const policyName = usePolicyName();
  const [command, setCommand] = useState<string | null>(null);
  const host = hostOf(agent);
  const upgrade = upgradeToShow(agent);
  const components = agent.components.flatMap((c) => c.name ?? []);
  const change = (part: AgentSearch) => void navigate({ search: (old) => compact({ ...old, ...part }), replace: true, resetScroll: false });
  return (
    <>
      <PageHead
        title={host}
        crumbs={CRUMBS}
        docs="agent"
        badge={agent.health ? <HealthBadge health={agent.health} strong /> : null}
        sub={<Running agent={agent} />}
      >
        <CommandBar commands={withForward(agent)} words={WORDS} shown={["rollback"]} onCommand={(c) => setCommand(c.name)} />
      </PageHead>
      {error ? <LoadError what="The newest state of the agent" error={error} onRetry={onRetry} /> : null}
      {agent.shared ? (
        <Callout kind="error" title={sentence(agent.shared.text)}>
          {agent.shared.next}
        </Callout>
      ) : null}
      {upgrade ? <UpgradeNow agent={agent} progress={upgrade} /> : null}
      <div className={classes.columns}>
        <div className={classes.main}>
          <Why
            agentId={agent.id}
            host={host}
            components={components}
            component={search.why}
            at={search.at}
            onChange={(c) => change({ why: c.why, at: c.at })}
          />
          <Components agent={agent} />
          <Timeline
            agentId={agent.id}
            components={components}
            component={search.component}
            onComponent={(component) => change({ component, entry: undefined })}
            open={search.entry}
            onOpen={(entry) => change({ entry })}
          />
        </div>
        <div className={classes.side}>
          <AgentFacts agent={agent} policy={policyName(agent.policy_id)} />
          <Tags agent={agent} />
          <Versions agent={agent} />
          <Diagnostics agent={agent} onRequest={() => setCommand("diagnostics")} />
        </div>
      </div>
      <RawDocument agent={agent} />
      {command ? <AgentDialog command={command} agent={agent} onClose={() => setCommand(null)} /> : null}
    </>
  );
}

/** What it runs, wants and last ran well, when it was seen, and which rollout has it. */
function Running({ agent: a }: { agent: Agent }) {
  const wants = a.desired_version && a.desired_version !== a.agent.version ? a.desired_version : undefined;
  return (
    <Line>
      {[
        <>
          runs <b className="mono">{a.agent.version || "no version yet"}</b>
        </>,
        wants ? (
          <>
            wants <b className="mono">{wants}</b>
          </>
        ) : null,
        a.last_healthy_version ? (
          <>
            last healthy <span className="mono">{a.last_healthy_version}</span>
          </>
        ) : null,
        <>
          checked in <Ago at={a.last_checkin} />
        </>,
        a.rollout ? (
          <>
            in the rollout{" "}
            <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: a.rollout.id }} inherit underline="always">
              {a.rollout.name}
            </TextLink>
          </>
        ) : null,
      ]}
    </Line>
  );
}
