import { Button, Text } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { IconArrowLeft, IconEye } from "@tabler/icons-react";
import { useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { ApiError } from "~/api/client";
import { keys } from "~/api/queries";
import { createRollout, dryRun } from "~/api/rollouts";
import { Empty, Loading, PageHead, Panel } from "~/components/Blocks";
import { Callout } from "~/components/Callout";
import { ReasonButton } from "~/components/ReasonButton";
import { PlanEditor } from "~/components/rollout/PlanEditor";
import { PreviewPanel } from "~/components/rollout/PreviewPanel";
import { TextLink } from "~/components/TextLink";
import { useToast } from "~/components/Toasts";
import { useNewestVersion } from "~/hooks/useAgents";
import { planExample } from "~/util/planExample";
import { parsePlan, serverFault, type Fault } from "~/util/planYaml";
import { plural, sentence } from "~/util/words";
import board from "~/components/rollout/Rollout.module.css";
import classes from "./RolloutsPage.module.css";

export function NewRolloutPage() {
  const newest = useNewestVersion();
  const [typed, setTyped] = useState<string | null>(null);
  const example = useMemo(() => planExample(newest), [newest]);
  const text = typed ?? example;
  const parsed = useMemo(() => parsePlan(text), [text]);
  const client = useQueryClient();
  const navigate = useNavigate();
  const toast = useToast();

  // The preview has the text that it is for, to show when the text has changed since.
  const preview = useMutation({ mutationFn: async (of: string) => ({ of, preview: await dryRun(parsePlan(of).plan!) }) });
  const create = useMutation({
    mutationFn: (of: string) => createRollout(parsePlan(of).plan!),
    onSuccess: (draft) => {
      toast({ kind: "done", title: `Created the draft “${draft.plan.name}”` });
      void client.invalidateQueries({ queryKey: keys.rollouts });
      void navigate({ to: "/rollouts/$rolloutId", params: { rolloutId: draft.id } });
    },
  });

  const refused = [create, preview].find((m) => m.isError && m.variables === text)?.error;
  const faults: Fault[] = parsed.faults.length > 0 ? parsed.faults : refused instanceof ApiError && refused.statusCode === 400 ? [serverFault(text, refused.message)] : [];
  const wrong = parsed.faults.length > 0 ? `The plan has ${plural(parsed.faults.length, "error")}, listed below it.` : null;
  const old = preview.data && preview.data.of !== text;
  return (
    <>
      <TextLink to="/rollouts" size="sm" className={classes.back}><IconArrowLeft size={14} aria-hidden /> Rollouts</TextLink>
      <PageHead title="New rollout" hint="Write a plan, preview it, and save it as a draft. Nothing is started on this page." />
      <div className={board.sides}>
        <section aria-label="Plan">
          <PlanEditor text={text} faults={faults} onChange={setTyped} />
          <div className={classes.actions}>
            <ReasonButton leftSection={<IconEye size={16} aria-hidden />} variant="default" reason={wrong} loading={preview.isPending} onClick={() => preview.mutate(text)}>
              {preview.data ? "Preview again" : "Preview"}
            </ReasonButton>
            <ReasonButton reason={wrong} loading={create.isPending} onClick={() => create.mutate(text)}>Create draft…</ReasonButton>
            {typed !== null && typed !== example ? <Button variant="subtle" color="gray" onClick={() => setTyped(null)}>Reset to the example</Button> : null}
          </div>
          <Text size="xs" c="dimmed">The same file works on the command line: <span className="mono">muster rollouts create --file plan.yaml --preview</span></Text>
        </section>
        <section aria-label="Preview">
          {refused && !(refused instanceof ApiError && refused.statusCode === 400) ? <Callout kind="error" title="The server refused the plan">{refused instanceof Error ? sentence(refused.message) : null}</Callout> : null}
          {old ? <Callout kind="info">The plan was changed after this preview. Preview again to see what it would do now.</Callout> : null}
          {preview.isPending && !preview.data ? <Panel><Loading rows={4} /></Panel> : null}
          {preview.data ? <div data-old={old || undefined} style={{ marginTop: old ? 12 : 0 }}><PreviewPanel preview={preview.data.preview} /></div> : null}
          {preview.isIdle ? <Panel><Empty icon={<IconEye size={32} stroke={1.5} aria-hidden />} title="What would happen">A preview shows which agents are upgraded and when, and which are left out and why. It is not stored.</Empty></Panel> : null}
        </section>
      </div>
    </>
  );
}
