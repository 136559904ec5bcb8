/** Asks for a version, and shows what an upgrade to it would do to the selected hosts before it is ordered. */
import { Autocomplete, Checkbox, SegmentedControl, Select, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { IconArrowRight } from "@tabler/icons-react";
import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useId, useMemo, useState } from "react";
import { messageOf } from "~/api/client";
import { keys, packagesQuery, previewQuery, versionsQuery } from "~/api/queries";
import { startUpgrade } from "~/api/upgrade";
import { type Chosen, countOf, isMatching, typedFor } from "~/util/agents/chosen";
import { hostOf } from "~/util/agents/facts";
import { isOwned, showsOwned, takeOverOf, whyNotTakeOver } from "~/util/fleet/owned";
import { componentWatchText, WATCH_TEXT } from "~/util/upgrade/phase";
import { defaultRollout, localNow, planUpgrade, questionOf, ROLLOUT_FROM_AGENTS, ROLLOUTS, type UpgradeForm, whyNotStart } from "~/util/upgrade/upgradeForm";
import { upgradeWords } from "~/util/upgrade/upgradeWords";
import { compareVersions } from "~/util/version";
import { useOrdered } from "../agents/useOrdered";
import { Callout } from "../base/Callout";
import { Dialog } from "../base/Dialog";
import { TakeOver } from "../fleet/TakeOver";
import { OrderPreview } from "./OrderPreview";
import classes from "./OrderPreview.module.css";

/** A typed version is previewed once typing pauses. */
const TYPING_PAUSE_MS = 300;

interface Props {
  /** Agents, or all that match a query. */
  chosen: Chosen;
  /** The version and force of an upgrade to retry. */
  again?: { version: string; force: boolean };
  /** A component of the agents to upgrade, instead of the agents. */
  component?: string;
  /** Go back to one of these versions, which the host has kept. */
  back?: readonly string[];
  /** Only stage the version. */
  stage?: boolean;
  onClose: () => void;
  onDone?: () => void;
}

export function UpgradeDialog({ chosen, again, component, back, stage = false, onClose, onDone }: Props) {
  const client = useQueryClient();
  const ordered = useOrdered(onClose, onDone);
  const ofAgents = useQuery({ ...versionsQuery, enabled: !component });
  const ofComponent = useQuery({
    ...packagesQuery,
    enabled: !!component && !back,
    select: (all) => [...new Set(all.filter((p) => p.component === component).map((p) => p.version))],
  });
  const versions = component ? ofComponent : ofAgents;
  const list = useMemo(() => back ?? [...(versions.data ?? [])].sort((a, b) => compareVersions(b, a)), [back, versions.data]);
  const count = countOf(chosen);

  const [typed, setTyped] = useState<string | null>(again?.version ?? null);
  const version = (typed ?? list[0] ?? "").trim();
  const [form, setForm] = useState<UpgradeForm>(() => ({
    source: "",
    force: again?.force ?? false,
    later: false,
    stage,
    startAt: "",
    rollout: defaultRollout(count),
    overrideFreeze: false,
    overrideExposure: false,
    inactive: false,
  }));
  const set = (change: Partial<UpgradeForm>) => setForm((old) => ({ ...old, ...change }));
  const [owner, setOwner] = useState("");

  const asked = useMemo(
    () => ({ ...questionOf(form, version, chosen, component, !!back), take_over: form.stage ? undefined : takeOverOf(owner) }),
    [form, version, chosen, component, back, owner],
  );
  const [question] = useDebouncedValue(asked, list.includes(version) && !form.source && !owner ? 0 : TYPING_PAUSE_MS);
  const preview = useQuery({ ...previewQuery(question), placeholderData: keepPreviousData });
  // What could be included stays on the screen once it is included.
  const offered = useQuery({
    ...previewQuery({ ...question, force: false, take_over: undefined, includeInactive: isMatching(chosen) ? chosen.inactive || undefined : undefined }),
    placeholderData: keepPreviousData,
  });
  const current = preview.isSuccess && !preview.isPlaceholderData && question === asked ? preview.data : undefined;

  const words = upgradeWords({
    form,
    version,
    component,
    back: !!back,
    host: !isMatching(chosen) && chosen.length === 1 ? hostOf(chosen[0]!) : undefined,
    count,
    will: current?.will ?? preview.data?.will,
  });
  const start = useMutation({
    mutationFn: (why: string) => startUpgrade(planUpgrade(form, current!, why, chosen, component, !!back), takeOverOf(owner)),
    onSuccess: (actionId) => {
      void client.invalidateQueries({ queryKey: keys.components });
      ordered(words.done, actionId);
    },
  });
  const owned = isOwned(start.error) || owner !== "" || showsOwned(preview.data) || showsOwned(offered.data);
  const overrides = form.overrideFreeze || form.overrideExposure;
  const one = !isMatching(chosen) && chosen.length === 1 ? chosen[0] : undefined;
  const whenId = useId();

  return (
    <Dialog
      title={words.title}
      confirm={`${owned ? "Take over: " : ""}${words.confirm}`}
      size="lg"
      typed={current ? typedFor(words.verb, current.will) : undefined}
      why={form.stage ? undefined : overrides ? "required" : "optional"}
      reason={whyNotStart(form, version, current, preview.error, Date.now()) ?? whyNotTakeOver(start.error, owner, showsOwned(current))}
      busy={start.isPending}
      error={isOwned(start.error) ? undefined : start.error}
      onConfirm={(why) => start.mutate(why)}
      onClose={onClose}
    >
      <div className={classes.form}>
        <div className={classes.pair}>
          {back ? (
            <Select
              label="Version"
              description="Those that the host has kept"
              data-autofocus
              allowDeselect={false}
              data={[...back]}
              value={version || null}
              onChange={setTyped}
            />
          ) : (
            <Autocomplete
              label="Version"
              size="xs"
              data-autofocus
              openOnFocus={false}
              placeholder={versions.isPending ? "Reading the versions" : "1.2.3"}
              data={list.slice(0, 100)}
              filter={({ options }) => options}
              description={
                versions.isSuccess && list.length === 0 ? "No package is published on this server yet." : version === list[0] ? "The newest package" : undefined
              }
              inputWrapperOrder={["label", "input", "description", "error"]}
              error={versions.error ? messageOf(versions.error) : undefined}
              value={typed ?? list[0] ?? ""}
              onChange={setTyped}
            />
          )}
          {stage ? null : (
            <div>
              <span className={classes.label} id={whenId}>
                Start
              </span>
              <SegmentedControl
                aria-labelledby={whenId}
                fullWidth
                data={[{ value: "now", label: "Now" }, { value: "later", label: "At a time" }, ...(back ? [] : [{ value: "stage", label: "Stage only" }])]}
                value={form.stage ? "stage" : form.later ? "later" : "now"}
                onChange={(v) => set({ later: v === "later", stage: v === "stage", startAt: form.startAt || localNow(Date.now() + 3_600_000) })}
              />
            </div>
          )}
        </div>
        {form.stage ? <span>The version is installed beside the one that runs. Nothing stops, and a later upgrade to it downloads nothing.</span> : null}
        {form.later || (count > ROLLOUT_FROM_AGENTS && !form.stage) ? (
          <div className={classes.pair}>
            {form.later ? (
              <TextInput
                type="datetime-local"
                label="Start time, in your time zone"
                min={localNow(Date.now())}
                value={form.startAt}
                onChange={(e) => set({ startAt: e.currentTarget.value })}
              />
            ) : null}
            {count > ROLLOUT_FROM_AGENTS && !form.stage ? (
              <Select
                label="Spread the starts across"
                allowDeselect={false}
                data={ROLLOUTS.map((r) => ({ value: String(r.seconds), label: r.label }))}
                value={String(form.rollout)}
                onChange={(v) => set({ rollout: Number(v ?? 0) })}
              />
            ) : null}
          </div>
        ) : null}
        {back ? null : (
          <details>
            <summary>Another source for the package</summary>
            <TextInput
              mt={6}
              label="Download the package from"
              description="A URL that the hosts can reach, instead of this server"
              placeholder="https://packages.example.com/muster"
              value={form.source}
              onChange={(e) => set({ source: e.currentTarget.value })}
            />
          </details>
        )}
      </div>
      {one && current?.items[0]?.will ? (
        <p className={`mono ${classes.versions}`}>
          {current.items[0].version || "none"}
          <IconArrowRight size={13} aria-label="to" />
          {current.version || version}
        </p>
      ) : null}
      {version !== "" ? (
        <OrderPreview
          byQuery={isMatching(chosen)}
          preview={preview.data}
          error={preview.error}
          stale={!current}
          does={words.does}
          offered={offered.data?.causes}
          taken={{ force: form.force, include_inactive: form.inactive }}
          onTake={back ? undefined : (choice, on) => set(choice === "force" ? { force: on } : { inactive: on })}
          after={form.stage ? "The page of each host lists what it has staged." : component ? componentWatchText(component) : WATCH_TEXT}
        />
      ) : null}
      {current?.refused && (current.guard || owner) ? (
        <Callout kind="warning" title="The server would refuse this">
          {current.refused}
        </Callout>
      ) : null}
      {form.overrideFreeze || current?.guard === "freeze" ? (
        <Checkbox
          mt="sm"
          checked={form.overrideFreeze}
          onChange={(e) => set({ overrideFreeze: e.currentTarget.checked })}
          label="Upgrade in spite of the freeze"
        />
      ) : null}
      {form.overrideExposure || current?.guard === "exposure" ? (
        <Checkbox
          mt="sm"
          checked={form.overrideExposure}
          onChange={(e) => set({ overrideExposure: e.currentTarget.checked })}
          label="Upgrade beyond the exposure budget"
        />
      ) : null}
      <TakeOver error={start.error} owned={owned} typed={owner} onType={setOwner} />
    </Dialog>
  );
}
