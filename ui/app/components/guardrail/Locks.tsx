/** Which policies are held by which rollouts. */
import { useQuery } from "@tanstack/react-query";
import { rolloutsQuery } from "~/api/queries";
import { RolloutBadge } from "~/components/base/Badge";
import { type Column, DataTable } from "~/components/base/DataTable";
import { LoadError, Loading, Section } from "~/components/base/Page";
import { TextLink } from "~/components/base/TextLink";
import { Ago } from "~/components/base/Time";
import { usePolicyName } from "~/hooks/useAgents";
import classes from "~/pages/Admin.module.css";
import { type Lock, locksOf } from "~/util/guardrail/guardRails";

export function Locks() {
  const rollouts = useQuery(rolloutsQuery);
  const policyName = usePolicyName();
  const locks = locksOf(rollouts.data?.items ?? []);
  const columns: Column<Lock>[] = [
    {
      id: "policy",
      header: "Policy",
      cell: (l) => (
        <TextLink to="/policies/$policyId" params={{ policyId: l.policyId }} inherit fw={600}>
          {policyName(l.policyId)}
        </TextLink>
      ),
    },
    {
      id: "rollout",
      header: "Held by",
      cell: (l) => (
        <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: l.rollout.id }} inherit underline="always">
          {l.rollout.plan.name}
        </TextLink>
      ),
    },
    { id: "state", header: "State", nowrap: true, cell: (l) => <RolloutBadge rollout={l.rollout} /> },
    {
      id: "since",
      header: "Since",
      nowrap: true,
      wide: true,
      cell: (l) => (
        <>
          <Ago at={l.rollout.started_at} />
          {l.rollout.started_by ? <span className={classes.muted}> by {l.rollout.started_by}</span> : null}
        </>
      ),
    },
  ];
  return (
    <Section title="Held policies" plain flush>
      <div className={classes.tight}>
        <p className={classes.note}>While a rollout is active it holds the policies of its hosts, so that no second rollout upgrades them at the same time.</p>
        {rollouts.isError ? <LoadError what="The rollouts" error={rollouts.error} onRetry={() => void rollouts.refetch()} /> : null}
        {rollouts.isPending ? <Loading rows={2} /> : null}
        {rollouts.data && locks.length === 0 ? <p className={classes.note}>No policy is held now.</p> : null}
        {locks.length > 0 ? <DataTable label="Held policies" columns={columns} rows={locks} rowId={(l) => `${l.policyId} ${l.rollout.id}`} /> : null}
      </div>
    </Section>
  );
}
