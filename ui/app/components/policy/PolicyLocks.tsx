/** The rollout that holds a policy. */
import { useQuery } from "@tanstack/react-query";
import { rolloutsQuery } from "~/api/queries";
import { RolloutBadge } from "~/components/base/Badge";
import { Callout } from "~/components/base/Callout";
import { TextLink } from "~/components/base/TextLink";
import { locksOf } from "~/util/guardrail/guardRails";

/** While a rollout holds a policy, no other rollout of its hosts starts. */
export function PolicyLocks({ policyId }: { policyId: string }) {
  const { data } = useQuery(rolloutsQuery);
  const locks = locksOf(data?.items ?? []).filter((l) => l.policyId === policyId);
  if (locks.length === 0) return null;
  return (
    <Callout kind="info" title="A rollout holds this policy">
      {locks.map(({ rollout: r }) => (
        <div key={r.id}>
          <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: r.id }} inherit underline="always">
            {r.plan.name}
          </TextLink>{" "}
          <RolloutBadge rollout={r} />
        </div>
      ))}
      Until it ends, no other rollout of the hosts of this policy starts.
    </Callout>
  );
}
