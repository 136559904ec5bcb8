import { Button, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { IconPlus, IconStack2 } from "@tabler/icons-react";
import { Link } from "@tanstack/react-router";
import { GROUPS_SHOWN, groupsQuery } from "~/api/queries";
import type { Group } from "~/api/types";
import { Empty, Loading, LoadError, PageHead, Panel } from "~/components/Blocks";
import { CopyBlock } from "~/components/CopyBlock";
import { Ago } from "~/components/Now";
import { GroupBadge, MemberBadge } from "~/components/rollout/RolloutBadge";
import { doneOf, groupStopTitle, policyText } from "~/util/group";
import { plural } from "~/util/words";
import classes from "./RolloutsPage.module.css";

export function GroupsPage() {
  const list = useQuery(groupsQuery);
  const all = list.data?.items ?? [];
  return (
    <>
      <PageHead
        title="Groups"
        hint={list.data && list.data.total > all.length ? `The newest ${GROUPS_SHOWN} of ${list.data.total.toLocaleString()}` : "Rollouts that run one after the other, such as a database before the programs that use it"}
      >
        <Button leftSection={<IconPlus size={16} aria-hidden />} renderRoot={(props) => <Link {...props} to="/groups/new" />}>New group…</Button>
      </PageHead>
      {list.isError ? <LoadError what="The groups" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? <Panel><Loading /></Panel> : null}
      {list.data && all.length === 0 ? (
        <Panel>
          <Empty icon={<IconStack2 size={36} stroke={1.5} aria-hidden />} title="No group yet">
            <p>A group upgrades several things in an order, and says what happens to those that are done when one fails.</p>
            <Button renderRoot={(props) => <Link {...props} to="/groups/new" />}>Create the first one</Button>
            <p>The command line creates it from the same file:</p>
            <CopyBlock label="Commands that create a group" text={"muster groups example > group.yaml\nmuster groups create --file group.yaml"} />
          </Empty>
        </Panel>
      ) : null}
      {all.length > 0 ? <ul className={classes.list} aria-label="Groups">{all.map((g) => <Card key={g.id} group={g} />)}</ul> : null}
    </>
  );
}

function Card({ group: g }: { group: Group }) {
  return (
    <li className={classes.card} aria-label={g.plan.name}>
      <div className={classes.head}>
        <div className={classes.title}>
          <Link className={classes.name} to="/groups/$groupId" params={{ groupId: g.id }}>{g.plan.name}</Link>
          <Text size="xs" c="dimmed">
            {policyText[g.plan.failure_policy]} · {g.started_at ? <>started by {g.started_by} <Ago at={g.started_at} /></> : <>drafted by {g.created_by} <Ago at={g.created_at} /></>}
            {g.ended_at ? <> · ended <Ago at={g.ended_at} /></> : null}
          </Text>
        </div>
        <GroupBadge state={g.state} />
      </div>
      <div className={classes.foot} style={{ marginTop: 10 }}>
        <span><b>{doneOf(g)}</b> of {plural(g.members.length, "member")} done</span>
        {g.members.map((m) => <span key={m.name}>{m.name} <MemberBadge state={m.state} /></span>)}
        {g.stop ? <span className={classes.wait}>{groupStopTitle[g.stop.kind]}</span> : null}
      </div>
    </li>
  );
}
