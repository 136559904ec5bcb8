/** The keys with which hosts enrol. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { enrollmentKeyPageQuery, KEYS_PER_PAGE } from "~/api/accessKeys";
import type { EnrollmentKey } from "~/api/types";
import { Badge } from "~/components/base/Badge";
import { CopyBlock, CopyIcon } from "~/components/base/CopyBlock";
import { type Column, DataTable } from "~/components/base/DataTable";
import { useClock } from "~/components/base/Now";
import { Empty, LoadError, Loading } from "~/components/base/Page";
import { Pager } from "~/components/base/Pager";
import { RowButton } from "~/components/base/RowButton";
import { TextLink } from "~/components/base/TextLink";
import { When } from "~/components/base/Time";
import classes from "~/pages/Admin.module.css";
import { keyLabel } from "~/util/enroll/enroll";
import { keyState } from "~/util/enroll/keyState";
import { RevokeEnrollmentKeyDialog } from "./EnrollmentKeyDialogs";

interface Props {
  page: number;
  onPage: (page: number) => void;
  policyName: (id: string) => string;
  /** Shows the command of a key. */
  onShow: (key: EnrollmentKey) => void;
}

export function EnrollmentKeys({ page, onPage, policyName, onShow }: Props) {
  const list = useQuery(enrollmentKeyPageQuery(page));
  const now = useClock();
  const [revoking, setRevoking] = useState<EnrollmentKey | null>(null);
  const columns: Column<EnrollmentKey>[] = [
    { id: "name", header: "Key", cell: (k) => <strong>{keyLabel(k)}</strong> },
    {
      id: "policy",
      header: "Policy",
      wide: true,
      cell: (k) => (
        <TextLink to="/policies/$policyId" params={{ policyId: k.policy_id }} inherit underline="hover">
          {policyName(k.policy_id)}
        </TextLink>
      ),
    },
    { id: "state", header: "State", nowrap: true, cell: (k) => <KeyBadge item={k} now={now} /> },
    { id: "created", header: "Created", nowrap: true, wide: true, cell: (k) => <When at={k.created_at} /> },
    { id: "expires", header: "Expires", nowrap: true, wide: true, cell: (k) => <When at={k.expire_at} never="never" /> },
    {
      id: "id",
      header: "Id",
      nowrap: true,
      wide: true,
      cell: (k) => (
        <span className={classes.copy}>
          <span className="mono" title={k.id}>
            {k.id.slice(0, 8)}…
          </span>
          <CopyIcon text={k.id} label={`Copy the id of ${keyLabel(k)}`} />
        </span>
      ),
    },
    {
      id: "act",
      header: "Actions",
      quiet: true,
      align: "end",
      cell: (k) => (
        <span className={classes.actions}>
          {k.api_key && keyState(k, now).word === "Active" ? (
            <RowButton label={`Show the command of ${keyLabel(k)}`} onClick={() => onShow(k)}>
              Show command
            </RowButton>
          ) : null}
          {k.active ? (
            <RowButton danger label={`Revoke ${keyLabel(k)}`} onClick={() => setRevoking(k)}>
              Revoke…
            </RowButton>
          ) : null}
        </span>
      ),
    },
  ];
  return (
    <>
      {list.isError ? <LoadError what="The enrolment keys" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? <Loading rows={3} /> : null}
      {list.data?.total === 0 ? (
        <Empty title="There is no enrolment key">
          <CopyBlock label="Command that creates a key" text="muster keys create --policy default --expires 24h" />
        </Empty>
      ) : null}
      {list.data && list.data.total > 0 ? (
        <>
          <DataTable label="Enrolment keys" columns={columns} rows={list.data.items} rowId={(k) => k.id} busy={list.isPlaceholderData} />
          <Pager page={page} perPage={KEYS_PER_PAGE} total={list.data.total} of="keys" onPage={onPage} />
        </>
      ) : null}
      {revoking ? <RevokeEnrollmentKeyDialog enrollmentKey={revoking} onClose={() => setRevoking(null)} /> : null}
    </>
  );
}

/** The state of a key. */
export function KeyBadge({ item, now }: { item: Parameters<typeof keyState>[0]; now: number }) {
  const { word, tone } = keyState(item, now);
  return <Badge tone={tone}>{word}</Badge>;
}
