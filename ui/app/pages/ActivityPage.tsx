import { Button, Group, Text } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { IconHistory } from "@tabler/icons-react";
import { Link, useLocation } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { call } from "~/api/client";
import { actionsQuery, ACTIONS_SHOWN, keys } from "~/api/queries";
import type { ActionStatus } from "~/api/types";
import { Empty, Loading, LoadError, PageHead, Panel } from "~/components/Blocks";
import { ConfirmDialog } from "~/components/ConfirmDialog";
import { Ago, useClock } from "~/components/Now";
import { ReasonButton } from "~/components/ReasonButton";
import { TextLink } from "~/components/TextLink";
import { useToast } from "~/components/Toasts";
import { usePolicyName } from "~/hooks/useAgents";
import { actionStatusLabel, actionTitle, isScheduled, progressOf, whyNotCancel } from "~/util/action";
import { runsQuery } from "~/util/component";
import type { AgentsSearch } from "~/util/search";
import { exact, sameDay } from "~/util/time";
import { plural } from "~/util/words";
import classes from "./ActivityPage.module.css";

export function ActivityPage() {
  const actions = useQuery(actionsQuery);
  const [cancelling, setCancelling] = useState<ActionStatus | null>(null);
  const hash = useLocation({ select: (l) => l.hash });
  const ready = actions.isSuccess;
  useEffect(() => {
    if (ready && hash) document.getElementById(hash)?.scrollIntoView({ block: "center" });
  }, [ready, hash]);

  const list = actions.data ?? [];
  return (
    <>
      <PageHead title="Activity" hint={list.length >= ACTIONS_SHOWN ? `The newest ${ACTIONS_SHOWN} actions` : "Actions on the fleet, newest first"} />
      {actions.isError ? <LoadError what="The actions" error={actions.error} onRetry={() => void actions.refetch()} /> : null}
      {actions.isPending ? <Panel><Loading /></Panel> : null}
      {actions.isSuccess && list.length === 0 ? (
        <Panel>
          <Empty icon={<IconHistory size={36} stroke={1.5} aria-hidden />} title="There are no actions yet">
            <p>Upgrades appear here, with their progress and their errors. <TextLink to="/agents" size="sm">Choose agents to upgrade</TextLink></p>
          </Empty>
        </Panel>
      ) : null}
      {byDay(list).map(([day, items]) => (
        <section key={day} aria-label={day} className={classes.day}>
          <h2 className={classes.dayTitle}>{day}</h2>
          <ul className={classes.list}>
            {items.map((a) => <ActionCard key={a.actionId} action={a} marked={a.actionId === hash} onCancel={() => setCancelling(a)} />)}
          </ul>
        </section>
      ))}
      {cancelling ? <CancelDialog action={cancelling} onClose={() => setCancelling(null)} /> : null}
    </>
  );
}

function byDay(list: readonly ActionStatus[]): [string, ActionStatus[]][] {
  const days: [string, ActionStatus[]][] = [];
  for (const a of list) {
    const last = days[days.length - 1];
    if (last && sameDay(last[1][0]!.creationTime, a.creationTime)) last[1].push(a);
    else days.push([dayName(a.creationTime), [a]]);
  }
  return days;
}

function dayName(iso: string): string {
  const today = new Date();
  if (sameDay(iso, today.toISOString())) return "Today";
  if (sameDay(iso, new Date(today.getTime() - 86_400_000).toISOString())) return "Yesterday";
  return new Date(iso).toLocaleDateString(undefined, { weekday: "long", day: "numeric", month: "long", year: "numeric" });
}

function ActionCard({ action: a, marked, onCancel }: { action: ActionStatus; marked: boolean; onCancel: () => void }) {
  const now = useClock();
  const policyName = usePolicyName();
  const title = actionTitle(a, now, policyName);
  const p = progressOf(a);
  const noCancel = whyNotCancel(a);
  const failedIds = [...new Set(a.latestErrors.map((e) => e.agentId))];
  return (
    <li className={classes.card} id={a.actionId} data-marked={marked || undefined} aria-label={title}>
      <div className={classes.head}>
        <div>
          <Text fw={600}>{title}</Text>
          <Text size="xs" c="dimmed">
            {a.created_by ? `Created by ${a.created_by} ` : "Created "}<Ago at={a.creationTime} />
            {isScheduled(a, now) ? <> · starts <time dateTime={a.startTime}>{exact(a.startTime)}</time></> : null}
            {a.hasRolloutPeriod ? " · spread over time" : ""}
            {a.is_automatic ? " · automatic" : ""}
            {a.completionTime && !a.policyId ? <> · ended <Ago at={a.completionTime} /></> : null}
            {a.cancellationTime ? <> · cancelled <Ago at={a.cancellationTime} /></> : null}
            {a.outcome === "IN_PROGRESS" && a.expiration ? <> · expires <Ago at={a.expiration} /></> : null}
          </Text>
        </div>
        <Group gap="xs">
          <span className={classes.status} data-status={a.outcome}>{actionStatusLabel[a.outcome] ?? a.outcome}</span>
          {a.outcome === "IN_PROGRESS" || a.outcome === "ROLLOUT_PASSED" ? (
            <ReasonButton size="xs" variant="default" reason={noCancel} onClick={onCancel}>Cancel…</ReasonButton>
          ) : null}
        </Group>
      </div>

      <div className={classes.bar} role="img" aria-label={`${p.done} done, ${p.failed} failed, ${p.waiting} waiting`}>
        <span data-part="done" style={{ flexGrow: p.done }} />
        <span data-part="failed" style={{ flexGrow: p.failed }} />
        <span data-part="waiting" data-over={a.outcome !== "IN_PROGRESS" || undefined} style={{ flexGrow: p.waiting }} />
      </div>
      <div className={classes.foot}>
        <span><b>{p.done.toLocaleString()}</b> done</span>
        <span data-bad={p.failed > 0 || undefined}><b>{p.failed.toLocaleString()}</b> failed</span>
        <span><b>{p.waiting.toLocaleString()}</b> {a.outcome === "IN_PROGRESS" ? "waiting" : "without an answer"}</span>
        <span className={classes.links}>
          {a.outcome === "IN_PROGRESS" ? (
            <TextLink to="/agents" search={underWay(a)} size="xs">Agents under way</TextLink>
          ) : null}
          {failedIds.length > 0 ? <TextLink to="/agents" search={{ ids: failedIds }} size="xs">Agents that failed</TextLink> : null}
          {a.version && a.component ? <TextLink to="/agents" search={{ kuery: runsQuery(a.component, a.version) }} size="xs">Agents with {a.component} {a.version}</TextLink>
            : a.version ? <TextLink to="/agents" search={{ version: a.version }} size="xs">Agents on {a.version}</TextLink> : null}
        </span>
      </div>

      {a.latestErrors.length > 0 ? <Errors action={a} /> : null}
    </li>
  );
}

/** The agents that an action is under way on; those of a policy have not got its revision. */
function underWay(a: ActionStatus): AgentsSearch {
  if (a.policyId) return { kuery: `policy_id: "${a.policyId}" and not policy_revision_idx >= ${a.revision}` };
  return a.component ? { kuery: `component_actions: "${a.actionId}"` } : { action: a.actionId };
}

/** Fewer are simply shown; more would hide the next action. */
const ERRORS_OPEN = 3;

function Errors({ action: a }: { action: ActionStatus }) {
  const [all, setAll] = useState(false);
  const shown = all ? a.latestErrors : a.latestErrors.slice(0, ERRORS_OPEN);
  const more = a.latestErrors.length - shown.length;
  return (
    <div className={classes.errors}>
      <ul>
        {shown.map((e) => (
          <li key={`${e.agentId} ${e.timestamp}`}>
            <Link to="/agents/$agentId" params={{ agentId: e.agentId }}>{e.hostname || e.agentId}</Link>
            <span>{e.error}</span>
            <Ago at={e.timestamp} />
          </li>
        ))}
      </ul>
      {more > 0 ? <Button size="compact-xs" variant="subtle" onClick={() => setAll(true)}>Show {plural(more, "more error")}</Button> : null}
      {a.nbAgentsFailed > a.latestErrors.length ? (
        <Text size="xs" c="dimmed">The latest {a.latestErrors.length} of {a.nbAgentsFailed.toLocaleString()} errors.</Text>
      ) : null}
    </div>
  );
}

function CancelDialog({ action, onClose }: { action: ActionStatus; onClose: () => void }) {
  const client = useQueryClient();
  const toast = useToast();
  const { waiting } = progressOf(action);
  const cancel = useMutation({
    mutationFn: () => call("post", "/api/fleet/agents/actions/{actionId}/cancel", { path: { actionId: action.actionId } }),
    onSuccess: () => {
      toast({ kind: "done", title: "Cancelled for agents that have not installed the new version yet" });
      void client.invalidateQueries({ queryKey: keys.actions });
      void client.invalidateQueries({ queryKey: keys.agents });
      onClose();
    },
  });
  return (
    <ConfirmDialog
      title="Cancel this upgrade?"
      confirm="Cancel upgrade"
      keep="Dismiss"
      busy={cancel.isPending}
      error={cancel.error}
      onConfirm={() => cancel.mutate()}
      onClose={onClose}
    >
      {plural(waiting, "agent")} {waiting === 1 ? "has" : "have"} not answered yet. Agents that have not started stay on their version. An agent that has started
      stops if it has not installed the new version yet. Upgraded agents stay upgraded.
    </ConfirmDialog>
  );
}
