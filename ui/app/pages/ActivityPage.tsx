/** What was ordered of hosts, by whom, and how far it is. */
import { Button } from "@mantine/core";
import { IconHistory } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";
import { ACTIONS_PER_PAGE, actionQuery, actionsQuery } from "~/api/actions";
import type { ActionStatus } from "~/api/types";
import { ActionDetails } from "~/components/activity/ActionDetails";
import classes from "~/components/activity/Activity.module.css";
import { CancelDialog } from "~/components/activity/CancelDialog";
import { Filters } from "~/components/activity/Filters";
import { Parts } from "~/components/activity/Parts";
import { Badge } from "~/components/base/Badge";
import { type Column, DataTable } from "~/components/base/DataTable";
import { useClock } from "~/components/base/Now";
import { Empty, Line, LoadError, Loading, PageHead, Section } from "~/components/base/Page";
import { ReasonButton } from "~/components/base/ReasonButton";
import { TextLink } from "~/components/base/TextLink";
import { Ago, When } from "~/components/base/Time";
import { usePolicyName } from "~/hooks/useAgents";
import { actionTitle, isScheduled, orderedBy, outcomeLook } from "~/util/activity/action";
import type { ActivitySearch } from "~/util/activity/activitySearch";
import { compact } from "~/util/searchParts";

const route = getRouteApi("/shell/activity");

const closed: ActivitySearch = { open: undefined, state: undefined, hosts: undefined };

export function ActivityPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const policyName = usePolicyName();
  const [cancelling, setCancelling] = useState<ActionStatus | null>(null);
  const actions = useQuery(actionsQuery(search));
  const rows = actions.data ?? [];
  const filtered = search.type || search.by || search.outcome;
  const change = (part: ActivitySearch) => void navigate({ search: (old) => compact({ ...old, ...closed, page: undefined, ...part }) });
  const show = (part: ActivitySearch) => void navigate({ search: (old) => compact({ ...old, ...part }), resetScroll: false });
  const openRow = { id: search.open, onChange: (open?: string) => show({ ...closed, open }) };
  // An action that a link leads to may be on another page.
  const elsewhere = actions.isSuccess && !actions.isPlaceholderData && search.open !== undefined && !rows.some((a) => a.actionId === search.open);
  const linked = useQuery({ ...actionQuery(search.open ?? ""), enabled: elsewhere });

  const columns: Column<ActionStatus>[] = [
    { id: "what", header: "What", width: "32%", cell: (a) => <What action={a} policyName={policyName} /> },
    { id: "hosts", header: "Hosts", cell: (a) => <Parts action={a} /> },
    { id: "state", header: "How it stands", width: "150px", nowrap: true, wide: true, cell: (a) => <Outcome action={a} /> },
    { id: "when", header: "Ordered", width: "130px", nowrap: true, wide: true, cell: (a) => <When at={a.creationTime} /> },
    { id: "commands", header: "Commands", quiet: true, width: "96px", align: "end", cell: (a) => <Cancel action={a} onCancel={() => setCancelling(a)} /> },
  ];
  const list = (label: string, of: readonly ActionStatus[]) => (
    <DataTable
      label={label}
      columns={columns}
      rows={of}
      rowId={(a) => a.actionId}
      rowName={(a) => actionTitle(a, policyName)}
      density="comfortable"
      busy={actions.isFetching && actions.isPlaceholderData}
      openRow={openRow}
      expanded={(a) => <ActionDetails action={a} search={search} onShow={show} />}
    />
  );
  return (
    <>
      <PageHead title="Activity" sub="What was ordered of hosts, and how far it is. An upgrade is done when the host's watcher has committed it." />
      <Filters search={search} onChange={change} />
      {actions.isError ? <LoadError what="The actions" error={actions.error} onRetry={() => void actions.refetch()} /> : null}
      {actions.isPending ? <Loading rows={8} /> : null}
      {actions.isSuccess && rows.length === 0 ? (
        <Empty icon={<IconHistory size={36} stroke={1.5} aria-hidden />} title={filtered ? "No action matches" : "Nothing was ordered yet"}>
          {filtered ? (
            <Button variant="default" onClick={() => change({ type: undefined, by: undefined, outcome: undefined })}>
              Clear the filters
            </Button>
          ) : (
            <>
              Upgrades, rollbacks and other orders appear here with their progress.{" "}
              <TextLink to="/agents" inherit underline="always">
                Choose hosts to upgrade
              </TextLink>
            </>
          )}
        </Empty>
      ) : null}
      {elsewhere && linked.isError ? <LoadError what="The action of the link" error={linked.error} onRetry={() => void linked.refetch()} /> : null}
      {elsewhere && linked.data ? (
        <Section title="The action of the link" plain flush>
          {list("The action of the link", [linked.data])}
        </Section>
      ) : null}
      {rows.length > 0 ? list("Actions", rows) : null}
      <Pages
        page={search.page ?? 1}
        more={rows.length === ACTIONS_PER_PAGE}
        onPage={(page) => void navigate({ search: (old) => compact({ ...old, ...closed, page: page > 1 ? page : undefined }) })}
      />
      {cancelling ? <CancelDialog action={cancelling} onClose={() => setCancelling(null)} /> : null}
    </>
  );
}

function What({ action: a, policyName }: { action: ActionStatus; policyName: (id: string) => string }) {
  const now = useClock();
  const by = orderedBy(a);
  return (
    <>
      <span className={classes.what}>{actionTitle(a, policyName)}</span>
      <span className={classes.sub}>
        <Line>
          {[
            by ? `by ${by}` : null,
            a.rollout ? (
              <>
                rollout{" "}
                <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: a.rollout.id }} inherit underline="always">
                  {a.rollout.name}
                </TextLink>
              </>
            ) : null,
            a.is_automatic ? "automatic, by the policy" : null,
            isScheduled(a, now) ? (
              <>
                begins <Ago at={a.startTime} />
              </>
            ) : a.hasRolloutPeriod ? (
              "spread over a period"
            ) : null,
          ]}
        </Line>
      </span>
    </>
  );
}

function Outcome({ action }: { action: ActionStatus }) {
  const { word, tone } = outcomeLook(action, useClock());
  return <Badge tone={tone}>{word}</Badge>;
}

/** Only while it can matter: what has ended, or can never be cancelled, needs no disabled button in its row. */
function Cancel({ action: a, onCancel }: { action: ActionStatus; onCancel: () => void }) {
  const cancel = a.commands?.find((c) => c.name === "cancel");
  if (!cancel || (!cancel.allowed && (a.outcome !== "IN_PROGRESS" || !a.progress))) return null;
  return (
    <ReasonButton
      size="compact-sm"
      variant="outline"
      color="red"
      reason={cancel.allowed ? null : (cancel.reason ?? "It cannot be cancelled now.")}
      aria-label={`Cancel ${actionTitle(a)}`}
      onClick={onCancel}
    >
      Cancel…
    </ReasonButton>
  );
}

function Pages({ page, more, onPage }: { page: number; more: boolean; onPage: (page: number) => void }) {
  if (page === 1 && !more) return null;
  return (
    <nav className={classes.pages} aria-label="Pages of actions">
      <span>Page {page.toLocaleString()}</span>
      <span className={classes.buttons}>
        <Button variant="default" disabled={page === 1} onClick={() => onPage(page - 1)}>
          Newer
        </Button>
        <Button variant="default" disabled={!more} onClick={() => onPage(page + 1)}>
          Older
        </Button>
      </span>
    </nav>
  );
}
