/** Bring hosts into the fleet, and the keys for it. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { policyKeysQuery } from "~/api/accessKeys";
import { policiesQuery, serverQuery } from "~/api/queries";
import type { EnrollmentKey } from "~/api/types";
import { useClock } from "~/components/base/Now";
import { LoadError, Loading, PageHead, Section } from "~/components/base/Page";
import { CreateEnrollmentKeyDialog } from "~/components/enroll/EnrollmentKeyDialogs";
import { EnrollmentKeys } from "~/components/enroll/EnrollmentKeys";
import { EnrollSteps } from "~/components/enroll/EnrollSteps";
import { usePolicyName } from "~/hooks/useAgents";
import { withCreated } from "~/util/enroll/enroll";
import { keyState } from "~/util/enroll/keyState";
import classes from "./Admin.module.css";

const route = getRouteApi("/shell/enroll");

export function EnrollPage() {
  const search = route.useSearch();
  const navigate = useNavigate({ from: "/enroll" });
  const now = useClock();
  const server = useQuery(serverQuery);
  const policies = useQuery(policiesQuery);
  const policyId = search.policy ?? (policies.data?.find((p) => p.is_default) ?? policies.data?.[0])?.id ?? "";
  const policyKeys = useQuery(policyKeysQuery(policyId));
  const [creating, setCreating] = useState(false);
  const [created, setCreated] = useState<EnrollmentKey | null>(null);
  const usable = withCreated(policyKeys.data ?? [], created?.policy_id === policyId ? created : null).filter((k) => keyState(k, now).word === "Active");
  const chosen = usable.find((k) => k.id === search.key) ?? usable.find((k) => k.api_key) ?? usable[0];
  const failed = server.error ?? policies.error;
  const go = (change: Partial<typeof search>) => void navigate({ search: (old) => ({ ...old, ...change }), replace: true, resetScroll: false });
  return (
    <>
      <PageHead title="Enrolment" docs="start" sub="A host enrols once, with a key. The key decides its policy, and can be revoked at any time." />
      {failed ? (
        <LoadError
          what="What hosts need to enrol"
          error={failed}
          onRetry={() => {
            void server.refetch();
            void policies.refetch();
          }}
        />
      ) : null}
      {server.isPending || policies.isPending ? <Loading /> : null}
      <div className={classes.stack}>
        {server.data && policies.data ? (
          <EnrollSteps
            server={server.data}
            policies={policies.data}
            policyId={policyId}
            keys={usable}
            chosen={chosen}
            platform={search.platform}
            onChange={go}
            onCreate={() => setCreating(true)}
          />
        ) : null}
        <Section title="Enrolment keys" plain flush>
          <EnrollmentKeys
            page={search.page ?? 1}
            policyName={usePolicyName()}
            onPage={(page) => go({ page })}
            onShow={(k) => {
              go({ policy: k.policy_id, key: k.id });
              window.scrollTo({ top: 0 });
            }}
          />
        </Section>
      </div>
      {creating ? (
        <CreateEnrollmentKeyDialog
          policies={policies.data ?? []}
          policyId={policyId}
          onClose={() => setCreating(false)}
          onDone={(k) => {
            setCreating(false);
            setCreated(k);
            go({ policy: k.policy_id, key: k.id });
          }}
        />
      ) : null}
    </>
  );
}
