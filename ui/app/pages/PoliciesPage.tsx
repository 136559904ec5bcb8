/** Policies: which hosts belong together, and what they run. */
import { Button } from "@mantine/core";
import { IconFlag3 } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { POLICIES_PER_PAGE, POLICY_SORTS, policyPageQuery } from "~/api/policies";
import type { Policy } from "~/api/types";
import { CopyBlock } from "~/components/base/CopyBlock";
import { type Column, DataTable } from "~/components/base/DataTable";
import { Empty, LoadError, Loading, PageHead } from "~/components/base/Page";
import { Pager } from "~/components/base/Pager";
import { TextLink } from "~/components/base/TextLink";
import { When } from "~/components/base/Time";
import { CreatePolicyDialog } from "~/components/policy/PolicyDialogs";
import { requiredText } from "~/util/policy/policy";
import classes from "./Admin.module.css";

const route = getRouteApi("/shell/policies");

const columns: Column<Policy>[] = [
  {
    id: "name",
    header: "Policy",
    sort: true,
    cell: (p) => (
      <>
        <span className={classes.inline}>
          <TextLink to="/policies/$policyId" params={{ policyId: p.id }} inherit className={classes.name}>
            {p.name}
          </TextLink>
          {p.is_default ? <span className={classes.tag}>default</span> : null}
          {p.is_managed ? <span className={classes.tag}>managed</span> : null}
        </span>
        {p.description ? <div className={classes.sub}>{p.description}</div> : null}
      </>
    ),
  },
  {
    id: "hosts",
    header: "Hosts",
    align: "end",
    nowrap: true,
    cell: (p) =>
      p.agents > 0 ? (
        <TextLink to="/agents" search={{ policy: [p.id] }} inherit underline="always" aria-label={`${p.agents.toLocaleString()} hosts of ${p.name}`}>
          {p.agents.toLocaleString()}
        </TextLink>
      ) : (
        "0"
      ),
  },
  { id: "components", header: "Components", cell: (p) => p.components?.map((c) => c.name).join(", ") || <span className={classes.muted}>none</span> },
  { id: "required", header: "Upgrades hosts to", wide: true, cell: (p) => requiredText(p) || <span className={classes.muted}>–</span> },
  { id: "revision", header: "Revision", sort: true, align: "end", wide: true, cell: (p) => p.revision.toLocaleString() },
  {
    id: "updated_at",
    header: "Changed",
    sort: true,
    nowrap: true,
    wide: true,
    cell: (p) => (
      <>
        <When at={p.updated_at} /> <span className={classes.muted}>by {p.updated_by}</span>
      </>
    ),
  },
];

export function PoliciesPage() {
  const { page = 1, sort, desc = false } = route.useSearch();
  const navigate = useNavigate({ from: "/policies" });
  const [creating, setCreating] = useState(false);
  const by = useMemo(() => ({ column: POLICY_SORTS.find((s) => s === sort) ?? "name", desc }), [sort, desc]);
  const list = useQuery(policyPageQuery(page, by.column, by.desc));
  return (
    <>
      <PageHead
        title="Policies"
        docs="start"
        sub="A policy says which hosts belong together, what they run, and which versions they are upgraded to automatically."
      >
        <Button onClick={() => setCreating(true)}>Create policy…</Button>
      </PageHead>
      {list.isError ? <LoadError what="The policies" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? <Loading /> : null}
      {list.data?.total === 0 ? (
        <Empty icon={<IconFlag3 size={32} stroke={1.5} aria-hidden />} title="There is no policy yet">
          <p>Hosts enrol into one. Create it here, or with this command.</p>
          <CopyBlock label="Command that creates a policy" text="muster policies create NAME" />
        </Empty>
      ) : null}
      {list.data && list.data.total > 0 ? (
        <>
          <DataTable
            label="Policies"
            columns={columns}
            rows={list.data.items}
            rowId={(p) => p.id}
            rowName={(p) => p.name}
            sort={by}
            density="comfortable"
            onSort={(s) => void navigate({ search: { sort: s.column, desc: s.desc || undefined } })}
            onOpen={(p) => void navigate({ to: "/policies/$policyId", params: { policyId: p.id } })}
            busy={list.isPlaceholderData}
          />
          <Pager
            page={page}
            perPage={POLICIES_PER_PAGE}
            total={list.data.total}
            of="policies"
            onPage={(n) => void navigate({ search: (old) => ({ ...old, page: n }) })}
          />
        </>
      ) : null}
      {creating ? (
        <CreatePolicyDialog onDone={(p) => void navigate({ to: "/policies/$policyId", params: { policyId: p.id } })} onClose={() => setCreating(false)} />
      ) : null}
    </>
  );
}
