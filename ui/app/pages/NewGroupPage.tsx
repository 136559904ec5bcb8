import { useQueryClient } from "@tanstack/react-query";
import { IconArrowLeft } from "@tabler/icons-react";
import { useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { createGroup } from "~/api/groups";
import { keys } from "~/api/queries";
import type { Group } from "~/api/types";
import { Facts, PageHead, Panel } from "~/components/Blocks";
import { NewPlan } from "~/components/rollout/NewPlan";
import { TextLink } from "~/components/TextLink";
import { useToast } from "~/components/Toasts";
import { useNewestVersion } from "~/hooks/useAgents";
import { policyText } from "~/util/group";
import { groupExample } from "~/util/groupExample";
import { parseGroup } from "~/util/planYaml";
import classes from "./RolloutsPage.module.css";

export function NewGroupPage() {
  const newest = useNewestVersion();
  const example = useMemo(() => groupExample(newest), [newest]);
  const client = useQueryClient();
  const navigate = useNavigate();
  const toast = useToast();
  const onCreated = (draft: Group) => {
    toast({ kind: "done", title: `Created the draft “${draft.plan.name}”` });
    void client.invalidateQueries({ queryKey: keys.groups });
    void navigate({ to: "/groups/$groupId", params: { groupId: draft.id } });
  };
  return (
    <>
      <TextLink to="/groups" size="sm" className={classes.back}><IconArrowLeft size={14} aria-hidden /> Groups</TextLink>
      <PageHead title="New group" hint="Write a plan and save it as a draft, which shows its preview. Nothing is started on this page." />
      <NewPlan example={example} parse={parseGroup} create={createGroup} onCreated={onCreated} command="muster groups create --file group.yaml --preview">
        <Panel title="When a member fails">
          <Facts rows={Object.entries(policyText).map(([policy, text]) => [policy, text])} />
        </Panel>
      </NewPlan>
    </>
  );
}
