import { Button } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { ApiError } from "~/api/client";
import { createGroup } from "~/api/groups";
import { groupPlanPreviewQuery } from "~/api/plans";
import { keys } from "~/api/queries";
import { Callout } from "~/components/base/Callout";
import { Empty, LoadError, Loading, PageHead } from "~/components/base/Page";
import { ReasonButton } from "~/components/base/ReasonButton";
import { toast } from "~/components/base/Toasts";
import { GroupFields } from "~/components/plan/GroupFields";
import { GroupPlanPreview } from "~/components/plan/GroupPlanPreview";
import { PlanFrame } from "~/components/plan/PlanFrame";
import { useNewestVersion } from "~/hooks/useAgents";
import { usePlanText } from "~/hooks/usePlanText";
import { groupExample } from "~/util/group/groupExample";
import { type GroupForm, membersOf, readGroupForm } from "~/util/group/groupForm";
import { whyNotReady, willOf } from "~/util/plan/planPreview";
import { type Fault, lineOf, parseGroup, serverFault } from "~/util/plan/planYaml";
import { plural, sentence } from "~/util/words";

/** How long typing must pause before the server previews. */
const TYPING_PAUSE_MS = 400;

export function NewGroupPage() {
  const newest = useNewestVersion();
  const example = useMemo(() => groupExample(newest), [newest]);
  const { text, write, typed, forget } = usePlanText("group", example);
  const [view, setView] = useState<"form" | "yaml">("form");
  const client = useQueryClient();
  const navigate = useNavigate();

  const parsed = useMemo(() => parseGroup(text), [text]);
  const form = useMemo(() => readGroupForm(text), [text]);
  const [lastForm, setLastForm] = useState<GroupForm>();
  if (form && form !== lastForm) setLastForm(form);
  const shownForm = form ?? lastForm;

  const [asked] = useDebouncedValue(parsed.faults.length === 0 ? text : undefined, TYPING_PAUSE_MS);
  const plan = useMemo(() => (asked === undefined ? undefined : parseGroup(asked).plan), [asked]);
  const tried = useQuery(groupPlanPreviewQuery(plan));
  const current = asked === text && !tried.isPlaceholderData && tried.data !== undefined;

  const save = useMutation({
    mutationFn: (of: string) => createGroup(parseGroup(of).plan!),
    onSuccess: (draft) => {
      toast({ kind: "done", title: `Saved the draft “${draft.plan.name}”` });
      forget();
      void client.invalidateQueries({ queryKey: keys.groups });
      void navigate({ to: "/groups/$groupId", params: { groupId: draft.id } });
    },
  });
  const refused = save.isError && save.variables === text ? save.error : null;
  const fromSave = refused instanceof ApiError && refused.statusCode === 400 ? serverFault(text, refused.message) : null;
  const fromMembers = current ? tried.data.flatMap((t, i) => t.refusals.map((r) => inMember(text, i, r.message))) : [];
  const faults =
    parsed.faults.length > 0 ? parsed.faults : [...fromMembers, ...(fromSave && !fromMembers.some((f) => f.field === fromSave.field) ? [fromSave] : [])];
  const notReady = whyNotReady(faults);
  const total = current ? tried.data.reduce((sum, t) => sum + (t.preview ? willOf(t.preview) : 0), 0) : 0;
  const members = membersOf(parsed.plan);
  return (
    <>
      <PageHead
        title="Create group"
        crumbs={[
          { label: "Rollouts", to: "/rollouts" },
          { label: "Groups", to: "/groups" },
        ]}
        docs="rollouts"
        sub="Several rollouts, one after the other. Nothing starts on this page: the draft shows its preview again before its start."
      >
        {typed ? (
          <Button variant="subtle" color="gray" onClick={forget}>
            Start again
          </Button>
        ) : null}
      </PageHead>
      <PlanFrame
        form={shownForm ? <GroupFields form={shownForm} plan={parsed.plan} text={text} faults={faults} disabled={!form} onText={write} /> : null}
        text={text}
        faults={faults}
        onText={write}
        command="muster groups create --file group.yaml --preview"
        view={view}
        onView={setView}
        preview={
          <>
            {refused && !fromSave ? (
              <Callout kind="error" title="The server refused the plan">
                {sentence(refused.message)}
              </Callout>
            ) : null}
            {tried.isError ? <LoadError what="The preview" error={tried.error} onRetry={() => void tried.refetch()} /> : null}
            {tried.data ? (
              <GroupPlanPreview members={members} tried={tried.data} busy={!current} />
            ) : tried.isFetching ? (
              <Loading rows={3} />
            ) : (
              <Empty title="Nothing to preview yet">{notReady}</Empty>
            )}
          </>
        }
        state={notReady ?? (current ? `${plural(total, "host")} in ${plural(members.length, "member")}` : "Working out what would happen…")}
        remark={current && !notReady ? "As if all members began now; a later one may find another fleet." : undefined}
        bad={faults.some((f) => !f.missing)}
        buttons={
          <>
            <Button
              variant="default"
              onClick={() => {
                forget();
                void navigate({ to: "/groups" });
              }}
            >
              Cancel
            </Button>
            <ReasonButton reason={notReady} loading={save.isPending} onClick={() => save.mutate(text)}>
              Save as draft
            </ReasonButton>
          </>
        }
      />
    </>
  );
}

/** A refusal of a member's plan, which the preview knows as a plan of its own. */
function inMember(text: string, index: number, message: string): Fault {
  const f = serverFault("", message);
  const field = f.field === "" ? `members[${index}]` : `members[${index}].plan.${f.field}`;
  return { line: lineOf(text, field), field, text: f.field === "" ? message : f.text.replace(f.field, field) };
}
