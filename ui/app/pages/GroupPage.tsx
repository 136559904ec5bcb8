import { IconHourglass, IconPlayerPause } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { ApiError } from "~/api/client";
import { groupQuery } from "~/api/queries";
import type { Command, Group, GroupStatus } from "~/api/types";
import { Callout } from "~/components/base/Callout";
import { CommandBar } from "~/components/base/CommandBar";
import { CopyIcon } from "~/components/base/CopyBlock";
import { Empty, Facts, Line, LoadError, Loading, PageHead, Section } from "~/components/base/Page";
import { Ago } from "~/components/base/Time";
import classes from "~/components/group/Group.module.css";
import { GroupBadge } from "~/components/group/GroupBadges";
import { GroupDialog } from "~/components/group/GroupDialog";
import { GroupDraft } from "~/components/group/GroupDraft";
import { GroupMembers } from "~/components/group/GroupMembers";
import { GroupTrail } from "~/components/group/GroupTrail";
import { doneOf, groupCommandWord, groupStopTitle, policyText } from "~/util/group/group";
import { sentence, sentenceAbout } from "~/util/words";

const route = getRouteApi("/shell/groups/$groupId");
const CRUMBS = [
  { label: "Rollouts", to: "/rollouts" },
  { label: "Groups", to: "/groups" },
];

export function GroupPage() {
  const { groupId } = route.useParams();
  const navigate = useNavigate();
  const query = useQuery(groupQuery(groupId));
  const [asked, setAsked] = useState<Command | null>(null);
  const g = query.data;
  if (!g) {
    return (
      <>
        <PageHead title="Group" crumbs={CRUMBS} />
        {query.error instanceof ApiError && query.error.statusCode === 404 ? (
          <Empty title="There is no such group">
            It may have been a draft that was deleted. Its id is <span className="mono">{groupId}</span>.
          </Empty>
        ) : query.isError ? (
          <LoadError what="The group" error={query.error} onRetry={() => void query.refetch()} />
        ) : (
          <Loading />
        )}
      </>
    );
  }
  const start = g.commands?.find((c) => c.name === "start" && c.allowed);
  return (
    <>
      <PageHead
        title={g.plan.name}
        crumbs={CRUMBS}
        docs="rollouts"
        badge={<GroupBadge state={g.state} strong />}
        sub={
          <Line>
            {[
              `${doneOf(g)} of ${g.members.length} members done`,
              policyText[g.plan.failure_policy],
              g.started_at ? (
                <>
                  started by {g.started_by} <Ago at={g.started_at} />
                </>
              ) : (
                <>
                  drafted by {g.created_by} <Ago at={g.created_at} />
                </>
              ),
              g.ended_at ? (
                <>
                  ended <Ago at={g.ended_at} />
                </>
              ) : null,
            ]}
          </Line>
        }
      >
        <CommandBar commands={g.commands} words={groupCommandWord as Record<string, string>} onCommand={setAsked} />
      </PageHead>
      {query.isError ? <LoadError what="The newest state of the group" error={query.error} onRetry={() => void query.refetch()} /> : null}
      {g.plan.description ? <p className={classes.description}>{sentence(g.plan.description)}</p> : null}
      <div className={classes.stack}>
        <Stopped group={g} />
        {g.waiting && g.state !== "paused" && g.state !== "draft" ? (
          <Callout kind="info" icon={<IconHourglass size={18} aria-hidden />} title={sentence(g.waiting)}>
            {g.until ? (
              <>
                It goes on <Ago at={g.until} />.
              </>
            ) : null}
          </Callout>
        ) : null}
        {start ? <GroupDraft group={g} start={start} /> : <GroupMembers group={g} />}
        <div className={classes.columns}>
          <GroupTrail groupId={g.id} />
          <About group={g} />
        </div>
      </div>
      {asked ? (
        <GroupDialog
          group={g}
          command={asked}
          onClose={() => setAsked(null)}
          onDone={() => (asked.name === "delete" ? void navigate({ to: "/groups" }) : undefined)}
        />
      ) : null}
    </>
  );
}

/** Why the group is paused or has not completed. */
function Stopped({ group: g }: { group: GroupStatus }) {
  if (!g.stop) return null;
  const kind = g.stop.kind === "operator" ? "warning" : "error";
  return (
    <Callout
      kind={kind}
      icon={kind === "warning" ? <IconPlayerPause size={18} aria-hidden /> : undefined}
      title={`${groupStopTitle[g.stop.kind]}${g.stop.member ? `: ${g.stop.member}` : ""}`}
    >
      <div>{sentenceAbout(g.stop.text, g.stop.by)}</div>
      {g.state === "paused" && g.stop.kind !== "operator" ? <div>Decide how it goes on: resume it, leave the member out, or roll all members back.</div> : null}
    </Callout>
  );
}

function About({ group: g }: { group: Group }) {
  return (
    <Section title="Plan" plain>
      <Facts
        rows={[
          ["When a member fails", policyText[g.plan.failure_policy]],
          ["Later members", g.plan.accept_drift ? "start with the fleet as it is then" : "pause the group if the fleet is not as previewed"],
          [
            "Rolled back",
            g.rolling_back ? (
              <>
                {g.rolling_back.by} <Ago at={g.rolling_back.at} />
                {g.rolling_back.why ? `: “${g.rolling_back.why}”` : ""}
              </>
            ) : (
              "no"
            ),
          ],
          [
            "Drafted",
            <>
              {g.created_by} <Ago at={g.created_at} />
            </>,
          ],
          [
            "Group id",
            <>
              <span className="mono">{g.id}</span> <CopyIcon text={g.id} label="Copy the group id" />
            </>,
          ],
        ]}
      />
    </Section>
  );
}
