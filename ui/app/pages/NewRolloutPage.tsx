import { Button } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { planPreviewQuery, type Started } from "~/api/plans";
import { keys } from "~/api/queries";
import { createRollout } from "~/api/rollouts";
import { Callout } from "~/components/base/Callout";
import { Empty, LoadError, Loading, PageHead } from "~/components/base/Page";
import { ReasonButton } from "~/components/base/ReasonButton";
import { toast } from "~/components/base/Toasts";
import { TakeOver } from "~/components/fleet/TakeOver";
import classes from "~/components/plan/Plan.module.css";
import { PlanFields } from "~/components/plan/PlanFields";
import { PlanFrame } from "~/components/plan/PlanFrame";
import { PlanPreview } from "~/components/plan/PlanPreview";
import { StartPlanDialog } from "~/components/plan/StartPlanDialog";
import { usePlanText } from "~/hooks/usePlanText";
import { isOwned, takeOverOf, whyNotTakeOver } from "~/util/fleet/owned";
import { planExample } from "~/util/plan/planExample";
import { type PlanForm, readForm, writeForm } from "~/util/plan/planForm";
import { headlineOf, whyNotReady, willOf } from "~/util/plan/planPreview";
import { agentsOf } from "~/util/plan/planSearch";
import { isWithin, parsePlan, serverFault, soundPart } from "~/util/plan/planYaml";
import { plural, sentence } from "~/util/words";

const route = getRouteApi("/shell/rollouts/new");

/** How long typing must pause before the server previews. */
const TYPING_PAUSE_MS = 400;

export function NewRolloutPage() {
  const search = route.useSearch();
  const navigate = useNavigate();
  const client = useQueryClient();
  const selected = agentsOf(search);
  const example = planExample({ version: search.version, component: search.component, kuery: search.kuery, agents: selected ?? undefined });
  const { text, write, typed, forget } = usePlanText("rollout", example);
  const [starting, setStarting] = useState(false);
  const [owner, setOwner] = useState("");

  const parsed = useMemo(() => parsePlan(text), [text]);
  const form = useMemo(() => readForm(text), [text]);
  // While the text is half written the form shows what it had.
  const [lastForm, setLastForm] = useState<PlanForm>();
  if (form && form !== lastForm) setLastForm(form);

  const [asked] = useDebouncedValue(text, TYPING_PAUSE_MS);
  const plan = useMemo(() => soundPart(parsePlan(asked)), [asked]);
  const tried = useQuery(planPreviewQuery(plan));
  const fresh = asked === text && plan !== undefined && !tried.isPlaceholderData && tried.data !== undefined;
  const located = (fresh ? tried.data.refusals : []).map((r) => serverFault(text, r.message));
  const faults = [
    ...parsed.faults,
    ...located.filter((f) => f.field !== "" && !parsed.faults.some((own) => isWithin(f.field, own.field) || isWithin(own.field, f.field))),
  ].sort((a, b) => a.line - b.line);
  const elsewhere = located.filter((f) => f.field === "");
  // The last preview stays until the next one arrives.
  const [last, setLast] = useState(tried.data?.preview);
  if (parsed.faults.length === 0 && tried.data?.preview && tried.data.preview !== last) setLast(tried.data.preview);
  const preview = (fresh ? tried.data.preview : undefined) ?? last;
  const current = fresh && tried.data.preview !== undefined && parsed.faults.length === 0;

  const save = useMutation({
    mutationFn: () => createRollout(parsed.plan!, takeOverOf(owner)),
    onSuccess: (draft) => {
      void client.invalidateQueries({ queryKey: keys.rollouts });
      leave({ rollout: draft }, `Saved the draft “${draft.plan.name}”`);
    },
  });

  const leave = ({ rollout, kept }: Started, title: string) => {
    forget();
    toast(kept ? { kind: "error", title: `“${rollout.plan.name}” was not started and is kept as a draft`, body: sentence(kept) } : { kind: "done", title });
    void navigate({ to: "/rollouts/$rolloutId", params: { rolloutId: rollout.id } });
  };

  const notReady = whyNotReady(faults) ?? (elsewhere[0] ? sentence(elsewhere[0].text) : null);
  const notStart =
    notReady ??
    (!current
      ? tried.isError
        ? "There is no preview to start from."
        : "Wait for the preview."
      : willOf(preview!) === 0
        ? "No host would be upgraded."
        : null);
  const shownForm = form ?? lastForm;
  return (
    <>
      <PageHead
        title="Create rollout"
        crumbs={[{ label: "Rollouts", to: "/rollouts" }]}
        docs="rollouts"
        sub="Fill in the form or write the YAML: each follows the other. Nothing starts before you confirm it."
      >
        {typed ? (
          <Button variant="subtle" color="gray" onClick={forget}>
            Start again
          </Button>
        ) : null}
      </PageHead>
      {selected === null ? (
        <Callout kind="warning" title="The selected hosts are not known here">
          They were selected in another tab. Select them again, or choose hosts by a query.
        </Callout>
      ) : null}
      <PlanFrame
        form={
          shownForm ? (
            <>
              {form ? null : <Callout kind="warning">The YAML has an error, so the form cannot change it. Correct the YAML first.</Callout>}
              <PlanFields form={shownForm} faults={faults} disabled={!form} onChange={(change) => write(writeForm(text, change))} />
            </>
          ) : null
        }
        text={text}
        faults={faults}
        onText={write}
        command="muster rollouts create --file plan.yaml --preview"
        view={search.view ?? "form"}
        onView={(view) => void navigate({ to: "/rollouts/new", search: { ...search, view: view === "yaml" ? "yaml" : undefined }, replace: true })}
        preview={
          <>
            {isOwned(save.error) ? (
              <TakeOver error={save.error} typed={owner} onType={setOwner} />
            ) : save.isError ? (
              <Callout kind="error" title="The draft was not saved">
                {sentence(save.error.message)}
              </Callout>
            ) : null}
            {tried.isError ? <LoadError what="The preview" error={tried.error} onRetry={() => void tried.refetch()} /> : null}
            {elsewhere.map((f) => (
              <Callout key={f.text} kind="error" title="The server refuses this plan">
                {sentence(f.text)}
              </Callout>
            ))}
            {preview ? (
              <div data-current={current || undefined} className={current || tried.isFetching ? undefined : classes.old}>
                <PlanPreview preview={preview} forced={shownForm?.force} onForce={form ? (force) => write(writeForm(text, { force })) : undefined} />
              </div>
            ) : tried.isFetching ? (
              <Loading rows={3} />
            ) : (
              <Empty title="Nothing to preview yet">
                {notReady ?? "The preview shows how many hosts are upgraded and when, and which are left out and why."}
              </Empty>
            )}
          </>
        }
        state={
          faults.some((f) => !f.missing) || elsewhere.length > 0
            ? plural(faults.length + elsewhere.length, "error")
            : notReady
              ? notReady
              : current
                ? headlineOf(preview!)
                : tried.isError
                  ? ""
                  : "Working out what would happen…"
        }
        bad={faults.some((f) => !f.missing) || elsewhere.length > 0}
        buttons={
          <>
            <Button
              variant="default"
              onClick={() => {
                forget();
                void navigate({ to: "/rollouts" });
              }}
            >
              Cancel
            </Button>
            <ReasonButton variant="default" reason={notReady ?? whyNotTakeOver(save.error, owner)} loading={save.isPending} onClick={() => save.mutate()}>
              {isOwned(save.error) ? "Take over and save as draft" : "Save as draft"}
            </ReasonButton>
            <ReasonButton reason={notStart} onClick={() => setStarting(true)}>
              Create and start…
            </ReasonButton>
          </>
        }
      />
      {starting && plan && preview ? (
        <StartPlanDialog
          plan={plan}
          preview={preview}
          onClose={() => setStarting(false)}
          onDone={(started) => leave(started, `“${started.rollout.plan.name}” started on ${plural(started.rollout.counts.total, "host")}`)}
        />
      ) : null}
    </>
  );
}
