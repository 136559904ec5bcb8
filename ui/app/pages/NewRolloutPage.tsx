import { useQueryClient } from "@tanstack/react-query";
import { IconArrowLeft, IconEye } from "@tabler/icons-react";
import { useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { keys } from "~/api/queries";
import { createRollout, dryRun } from "~/api/rollouts";
import type { Plan, Rollout } from "~/api/types";
import { Empty, PageHead, Panel } from "~/components/Blocks";
import { NewPlan } from "~/components/rollout/NewPlan";
import { PreviewPanel } from "~/components/rollout/PreviewPanel";
import { TextLink } from "~/components/TextLink";
import { useToast } from "~/components/Toasts";
import { useNewestVersion } from "~/hooks/useAgents";
import { planExample } from "~/util/planExample";
import { parsePlan } from "~/util/planYaml";
import classes from "./RolloutsPage.module.css";

const preview = async (plan: Plan) => <PreviewPanel preview={await dryRun(plan)} />;

export function NewRolloutPage() {
  const newest = useNewestVersion();
  const example = useMemo(() => planExample(newest), [newest]);
  const client = useQueryClient();
  const navigate = useNavigate();
  const toast = useToast();
  const onCreated = (draft: Rollout) => {
    toast({ kind: "done", title: `Created the draft “${draft.plan.name}”` });
    void client.invalidateQueries({ queryKey: keys.rollouts });
    void navigate({ to: "/rollouts/$rolloutId", params: { rolloutId: draft.id } });
  };
  return (
    <>
      <TextLink to="/rollouts" size="sm" className={classes.back}><IconArrowLeft size={14} aria-hidden /> Rollouts</TextLink>
      <PageHead title="New rollout" hint="Write a plan, preview it, and save it as a draft. Nothing is started on this page." />
      <NewPlan example={example} parse={parsePlan} create={createRollout} onCreated={onCreated} preview={preview} command="muster rollouts create --file plan.yaml --preview">
        <Panel><Empty icon={<IconEye size={32} stroke={1.5} aria-hidden />} title="What would happen">A preview shows which agents are upgraded and when, and which are left out and why. It is not stored.</Empty></Panel>
      </NewPlan>
    </>
  );
}
