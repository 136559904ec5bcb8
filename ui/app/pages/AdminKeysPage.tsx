/** The keys with which people and programs use this server. */
import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { adminKeyPageQuery, KEYS_PER_PAGE } from "~/api/accessKeys";
import { sessionQuery } from "~/api/queries";
import type { AdminKey } from "~/api/types";
import { type Column, DataTable } from "~/components/base/DataTable";
import { useClock } from "~/components/base/Now";
import { LoadError, Loading, PageHead } from "~/components/base/Page";
import { Pager } from "~/components/base/Pager";
import { RowButton } from "~/components/base/RowButton";
import { SubNav } from "~/components/base/SubNav";
import { TextLink } from "~/components/base/TextLink";
import { When } from "~/components/base/Time";
import { KeyBadge } from "~/components/enroll/EnrollmentKeys";
import { CreateAdminKeyDialog, RevokeAdminKeyDialog, RotateAdminKeyDialog } from "~/components/settings/AdminKeyDialogs";
import { keyState } from "~/util/enroll/keyState";
import classes from "./Admin.module.css";
import { SETTINGS_PAGES } from "./subPages";

const route = getRouteApi("/shell/admin-keys");

type Open = { kind: "create" } | { kind: "rotate" | "revoke"; key: AdminKey };

export function AdminKeysPage() {
  const { page = 1 } = route.useSearch();
  const navigate = useNavigate({ from: "/admin-keys" });
  const list = useQuery(adminKeyPageQuery(page));
  const session = useQuery(sessionQuery);
  const now = useClock();
  const [open, setOpen] = useState<Open | null>(null);
  const close = () => setOpen(null);
  const mine = session.data?.key_id;
  const columns: Column<AdminKey>[] = [
    {
      id: "name",
      header: "Name",
      cell: (k) => (
        <span className={classes.inline}>
          <TextLink to="/audit" search={{ actor: k.name }} inherit className={classes.name} aria-label={`What ${k.name} did`}>
            {k.name}
          </TextLink>
          {k.id === mine ? <span className={classes.tag}>you</span> : null}
        </span>
      ),
    },
    { id: "state", header: "State", nowrap: true, cell: (k) => <KeyBadge item={k} now={now} /> },
    { id: "used", header: "Last used", nowrap: true, cell: (k) => <When at={k.last_used_at} never="never" /> },
    { id: "expires", header: "Expires", nowrap: true, wide: true, cell: (k) => <When at={k.expire_at} never="never" /> },
    {
      id: "created",
      header: "Created",
      nowrap: true,
      wide: true,
      cell: (k) => (
        <>
          <When at={k.created_at} />
          {k.created_by ? <span className={classes.muted}> by {k.created_by}</span> : null}
        </>
      ),
    },
    { id: "id", header: "Id", wide: true, cell: (k) => <span className="mono">{k.id}</span> },
    {
      id: "act",
      header: "Actions",
      quiet: true,
      align: "end",
      nowrap: true,
      cell: (k) =>
        keyState(k, now).word === "Active" ? (
          <span className={classes.actions}>
            {k.id === mine ? (
              <RowButton label={`Rotate ${k.name}`} onClick={() => setOpen({ kind: "rotate", key: k })}>
                Rotate…
              </RowButton>
            ) : null}
            <RowButton danger label={`Revoke ${k.name}`} onClick={() => setOpen({ kind: "revoke", key: k })}>
              Revoke…
            </RowButton>
          </span>
        ) : null,
    },
  ];
  return (
    <>
      <PageHead
        title="Settings"
        name="Admin keys"
        docs="security"
        sub="Keys with which people and programs use this server. A key's name stands beside everything that is done with it."
      >
        <Button onClick={() => setOpen({ kind: "create" })}>Create key…</Button>
      </PageHead>
      <SubNav label="Settings" pages={SETTINGS_PAGES} />
      {list.isError ? <LoadError what="The admin keys" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? <Loading rows={3} /> : null}
      {list.data ? (
        <>
          <DataTable label="Admin keys" columns={columns} rows={list.data.items} rowId={(k) => k.id} busy={list.isPlaceholderData} />
          <Pager page={page} perPage={KEYS_PER_PAGE} total={list.data.total} of="keys" onPage={(n) => void navigate({ search: { page: n } })} />
        </>
      ) : null}
      {open?.kind === "create" ? <CreateAdminKeyDialog onClose={close} /> : null}
      {open?.kind === "rotate" ? <RotateAdminKeyDialog adminKey={open.key} mine={open.key.id === mine} onClose={close} /> : null}
      {open?.kind === "revoke" ? <RevokeAdminKeyDialog adminKey={open.key} mine={open.key.id === mine} onClose={close} /> : null}
    </>
  );
}
