import { Button } from "@mantine/core";
import { IconStack2 } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { GROUPS_PER_PAGE, groupsQuery } from "~/api/queries";
import type { Group } from "~/api/types";
import { CopyBlock } from "~/components/base/CopyBlock";
import { type Column, DataTable } from "~/components/base/DataTable";
import { Empty, LoadError, Loading, PageHead } from "~/components/base/Page";
import { Pager } from "~/components/base/Pager";
import { SubNav } from "~/components/base/SubNav";
import { When } from "~/components/base/Time";
import classes from "~/components/group/Group.module.css";
import { GroupBadge, MemberBadge } from "~/components/group/GroupBadges";
import { doneOf, groupStopTitle, policyText } from "~/util/group/group";

const route = getRouteApi("/shell/groups");

const columns: Column<Group>[] = [
  {
    id: "name",
    header: "Name",
    width: "24%",
    cell: (g) => (
      <>
        <Link className={classes.name} to="/groups/$groupId" params={{ groupId: g.id }}>
          {g.plan.name}
        </Link>
        <div className={classes.sub}>{policyText[g.plan.failure_policy]}</div>
      </>
    ),
  },
  {
    id: "state",
    header: "State",
    nowrap: true,
    cell: (g) => (
      <>
        <GroupBadge state={g.state} />
        {g.stop ? <div className={classes.sub}>{groupStopTitle[g.stop.kind]}</div> : null}
      </>
    ),
  },
  { id: "done", header: "Done", align: "end", nowrap: true, cell: (g) => `${doneOf(g)} of ${g.members.length}` },
  {
    id: "members",
    header: "Members, in their order",
    wide: true,
    cell: (g) => (
      <div className={classes.members}>
        {g.members.map((m) => (
          <span key={m.name}>
            {m.name} <MemberBadge state={m.state} />
          </span>
        ))}
      </div>
    ),
  },
  { id: "by", header: "Started by", wide: true, cell: (g) => g.started_by ?? <span className={classes.sub}>{g.created_by}, as a draft</span> },
  { id: "at", header: "Started", nowrap: true, cell: (g) => <When at={g.started_at} /> },
];

export function GroupsPage() {
  const { page = 1 } = route.useSearch();
  const navigate = route.useNavigate();
  const list = useQuery(groupsQuery(page));
  const rows = list.data?.items ?? [];
  return (
    <>
      <PageHead
        title="Groups"
        crumbs={[{ label: "Rollouts", to: "/rollouts" }]}
        docs="rollouts"
        sub="Rollouts that run one after the other, such as a database before the programs that use it"
      >
        <Button renderRoot={(props) => <Link {...props} to="/groups/new" />}>Create group</Button>
      </PageHead>
      <SubNav
        label="Rollouts"
        pages={[
          { to: "/rollouts", label: "Rollouts" },
          { to: "/groups", label: "Groups" },
        ]}
      />
      {list.isError ? <LoadError what="The groups" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? <Loading /> : null}
      {list.data && list.data.total === 0 ? (
        <Empty icon={<IconStack2 size={36} stroke={1.5} aria-hidden />} title="No group yet">
          <p>A group upgrades several things in an order, and says what happens to those that are done when one fails.</p>
          <p>The command line creates it from the same file as this page:</p>
          <CopyBlock label="Commands that create a group" text={"muster groups example > group.yaml\nmuster groups create --file group.yaml"} />
        </Empty>
      ) : null}
      {rows.length > 0 ? (
        <DataTable
          label="Groups"
          columns={columns}
          rows={rows}
          rowId={(g) => g.id}
          density="comfortable"
          busy={list.isPlaceholderData}
          onOpen={(g) => void navigate({ to: "/groups/$groupId", params: { groupId: g.id } })}
        />
      ) : null}
      {list.data && list.data.total > 0 ? (
        <Pager page={page} perPage={GROUPS_PER_PAGE} total={list.data.total} of="groups" onPage={(p) => void navigate({ search: p > 1 ? { page: p } : {} })} />
      ) : null}
    </>
  );
}
