import {
  Button, Checkbox, Collapse, Group, Modal, ScrollArea, SegmentedControl, Select, Stack, Text, TextInput, UnstyledButton,
} from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { IconArrowRight, IconCheck, IconChevronDown, IconChevronRight, IconInfoCircle, IconMinus } from "@tabler/icons-react";
import { useId, useMemo, useState } from "react";
import { messageOf } from "~/api/client";
import { startUpgrade } from "~/api/upgrade";
import { keys, packagesQuery, previewQuery, versionsQuery } from "~/api/queries";
import type { Agent, UpgradePreview, UpgradePreviewItem } from "~/api/types";
import { useReturnFocus } from "~/hooks/useReturnFocus";
import { hostOf } from "~/util/facts";
import { countOf, isMatching, selectionOf, type Chosen } from "~/util/matching";
import {
  defaultRollout, localNow, overridesOf, planUpgrade, ROLLOUTS, ROLLOUT_FROM_AGENTS, timesOf, type UpgradeForm, whyNotStart,
} from "~/util/upgradeForm";
import { componentWatchText, WATCH_TEXT } from "~/util/phase";
import { compareVersions } from "~/util/version";
import { isOwned, takeOverOf, whyNotTakeOver } from "~/util/owned";
import { plural } from "~/util/words";
import { Callout } from "./Callout";
import { MatchingNote } from "./MatchingNote";
import { ReasonButton } from "./ReasonButton";
import { TakeOver } from "./TakeOver";
import { TextLink } from "./TextLink";
import { useToast } from "./Toasts";
import classes from "./UpgradeDialog.module.css";

const OTHER = "other";
/** A typed version is previewed once typing pauses. */
const TYPING_PAUSE_MS = 300;
/** A longer list is not read; the counts above it are complete. */
const LINES = 200;

const NOBODY: Agent[] = [];

interface Props {
  /** Agents, or all that match a query. */
  chosen: Chosen;
  /** The version and force of an upgrade to retry. */
  again?: { version: string; force: boolean };
  /** A component of the agents to upgrade, instead of the agents. */
  component?: string;
  /** Go back to one of these versions, which the host has kept. */
  back?: readonly string[];
  onClose: () => void;
  onDone?: () => void;
}

export function UpgradeDialog({ chosen, again, component, back, onClose, onDone }: Props) {
  useReturnFocus();
  const client = useQueryClient();
  const toast = useToast();
  const ofAgents = useQuery({ ...versionsQuery, enabled: !component });
  const ofComponent = useQuery({
    ...packagesQuery, enabled: !!component && !back,
    select: (all) => [...new Set(all.filter((p) => p.component === component).map((p) => p.version))],
  });
  const versions = component ? ofComponent : ofAgents;
  const matching = isMatching(chosen) ? chosen : null;
  const agents = isMatching(chosen) ? NOBODY : chosen;
  const count = countOf(chosen);
  const on = component ? `${component} on ` : "";
  const list = useMemo(() => back ?? [...(versions.data ?? [])].sort((a, b) => compareVersions(b, a)), [back, versions.data]);

  const [picked, setPicked] = useState<string | null>(again?.version ?? null);
  const [typed, setTyped] = useState("");
  const [advanced, setAdvanced] = useState(false);
  const [form, setForm] = useState<UpgradeForm>(() => ({
    source: "", force: again?.force ?? false, later: false, stage: false, startAt: "", rollout: defaultRollout(count),
    overrideFreeze: false, overrideExposure: false, why: "",
  }));
  const [owner, setOwner] = useState("");
  const set = (change: Partial<UpgradeForm>) => setForm((old) => ({ ...old, ...change }));

  const choice = picked ?? list[0] ?? (versions.isSuccess ? OTHER : "");
  const version = choice === OTHER ? typed.trim() : choice;

  const { source, force, later, stage, startAt, rollout, overrideFreeze, overrideExposure } = form;
  const [question] = useDebouncedValue(
    useMemo(
      () => ({
        ...selectionOf(chosen), component, version, force, rollback: back ? true : undefined, source_uri: source.trim() || undefined,
        stage: stage || undefined, ...timesOf({ later, startAt, rollout }), ...overridesOf({ overrideFreeze, overrideExposure }),
      }),
      [chosen, component, back, version, force, source, later, stage, startAt, rollout, overrideFreeze, overrideExposure],
    ),
    choice === OTHER || form.source ? TYPING_PAUSE_MS : 0,
  );
  const preview = useQuery({ ...previewQuery(question), placeholderData: keepPreviousData });
  const current = preview.isSuccess && !preview.isPlaceholderData && question.version === version && !!question.stage === stage ? preview.data : undefined;

  const start = useMutation({
    mutationFn: () => startUpgrade(planUpgrade(form, current!, chosen, component, !!back), takeOverOf(owner)),
    onSuccess: () => {
      const n = current!.will;
      toast({
        kind: "done",
        title: stage ? `Staging ${component ? `${component} ` : ""}${version} on ${plural(n, "agent")}` : form.later ? `${back ? "Rollback" : "Upgrade"} of ${on}${plural(n, "agent")} is scheduled` : `${back ? "Rolling back" : "Upgrading"} ${on}${plural(n, "agent")} to ${version}`,
        body: <TextLink to="/activity" size="sm">Follow it under Activity</TextLink>,
      });
      void client.invalidateQueries({ queryKey: keys.agents });
      void client.invalidateQueries({ queryKey: keys.actions });
      void client.invalidateQueries({ queryKey: keys.components });
      onDone?.();
      onClose();
    },
  });

  const why = whyNotStart(form, version, current, preview.error, Date.now()) ?? whyNotTakeOver(start.error, owner);

  const whenId = useId();
  const one = agents.length === 1 ? agents[0] : undefined;
  return (
    <Modal
      opened
      onClose={onClose}
      size="lg"
      title={<Text fw={600} size="lg">{back ? "Roll back" : "Upgrade"} {on}{one ? hostOf(one) : `${matching ? "all matching, " : ""}${plural(count, "agent")}`}</Text>}
      closeButtonProps={{ "aria-label": "Close" }}
    >
      <form
        onSubmit={(e) => {
          e.preventDefault();
          if (!why && !start.isPending) start.mutate();
        }}
      >
        <Stack gap="md">
          {matching ? <MatchingNote matching={matching} /> : null}
          <Group grow align="flex-start">
            <Select
              label="Version"
              data-autofocus
              allowDeselect={false}
              searchable
              openOnFocus={false}
              nothingFoundMessage="No package has this version"
              description={back ? "Those that the host has kept" : undefined}
              placeholder={versions.isPending && !back ? "Loading versions…" : undefined}
              data={[
                ...list.map((v, i) => ({ value: v, label: i === 0 && !back ? `${v} (newest)` : v })),
                ...(back ? [] : [{ value: OTHER, label: "Another version…" }]),
              ]}
              value={choice || null}
              onChange={(v) => setPicked(v)}
              error={versions.error ? messageOf(versions.error) : undefined}
            />
            {choice === OTHER ? (
              <TextInput
                label="Another version"
                placeholder="1.2.3"
                value={typed}
                onChange={(e) => setTyped(e.currentTarget.value)}
                description={list.length === 0 ? "No package is published on this server yet." : undefined}
              />
            ) : null}
          </Group>

          <div className={classes.when}>
            <div>
              <Text size="sm" fw={500} id={whenId} mb={4}>Start</Text>
              <SegmentedControl
                aria-labelledby={whenId}
                data={[{ value: "now", label: "Now" }, { value: "later", label: "At a time" }, ...(back ? [] : [{ value: "stage", label: "Stage only" }])]}
                value={stage ? "stage" : form.later ? "later" : "now"}
                onChange={(v) => set({ later: v === "later", stage: v === "stage", startAt: form.startAt || localNow(Date.now() + 3_600_000) })}
              />
            </div>
            {form.later ? (
              <TextInput
                type="datetime-local"
                label="Start time"
                min={localNow(Date.now())}
                value={form.startAt}
                onChange={(e) => set({ startAt: e.currentTarget.value })}
              />
            ) : null}
            {stage ? <Text size="sm" c="dimmed">Installed beside the version that runs. Nothing stops, and a later upgrade to it downloads nothing.</Text> : null}
            {count > ROLLOUT_FROM_AGENTS && !stage ? (
              <Select
                label="Spread the starts over"
                allowDeselect={false}
                data={ROLLOUTS.map((r) => ({ value: String(r.seconds), label: r.label }))}
                value={String(form.rollout)}
                onChange={(v) => set({ rollout: Number(v ?? 0) })}
              />
            ) : null}
          </div>

          {back ? null : (
            <div>
              <UnstyledButton className={classes.more} aria-expanded={advanced} onClick={() => setAdvanced(!advanced)}>
                {advanced ? <IconChevronDown size={15} aria-hidden /> : <IconChevronRight size={15} aria-hidden />} Advanced
              </UnstyledButton>
              <Collapse expanded={advanced}>
                <TextInput
                  mt={6}
                  label="Download the package from"
                  description="A URL that the agents can reach. Default: this server."
                  placeholder="https://packages.example.com/muster"
                  value={form.source}
                  onChange={(e) => set({ source: e.currentTarget.value })}
                />
              </Collapse>
              <Checkbox
                mt="sm"
                checked={form.force}
                onChange={(e) => set({ force: e.currentTarget.checked })}
                label="Force"
                description={component
                  ? "Also where this version or a later one is installed, or where it failed before."
                  : "Also upgrade agents that are upgrading already, run this version or a later one, or refuse it after a rollback."}
              />
            </div>
          )}

          <Preview preview={preview.data} stale={!current} loading={preview.isFetching} error={preview.error} version={version} agents={agents} will={stage ? "stage it" : back ? "be rolled back" : "be upgraded"} after={stage ? "Agents list what they have staged on their page." : component ? componentWatchText(component) : WATCH_TEXT} />

          {current?.refused ? <Callout kind="warning" title="The upgrade would be refused">{current.refused}</Callout> : null}
          {overrideFreeze || current?.guard === "freeze" ? (
            <Checkbox checked={overrideFreeze} onChange={(e) => set({ overrideFreeze: e.currentTarget.checked })} label="Upgrade in spite of the freeze" />
          ) : null}
          {overrideExposure || current?.guard === "exposure" ? (
            <Checkbox checked={overrideExposure} onChange={(e) => set({ overrideExposure: e.currentTarget.checked })} label="Upgrade beyond the exposure budget" />
          ) : null}
          {overrideFreeze || overrideExposure ? (
            <TextInput
              label="Why it cannot wait"
              description="The audit trail keeps it."
              value={form.why}
              onChange={(e) => set({ why: e.currentTarget.value })}
            />
          ) : null}

          <TakeOver error={start.error} typed={owner} onType={setOwner} />
          {start.isError && !isOwned(start.error) ? (
            <Callout kind="error" title="The upgrade was not started">{messageOf(start.error)}</Callout>
          ) : null}

          <Group justify="flex-end" gap="sm" className={classes.foot}>
            <Text size="xs" c="dimmed" className={classes.reason} aria-live="polite">{why ?? ""}</Text>
            <Button variant="default" onClick={onClose}>Close</Button>
            <ReasonButton type="submit" reason={why} loading={start.isPending}>
              {isOwned(start.error) ? "Take over: " : ""}{stage ? "Stage on" : form.later ? `Schedule ${back ? "rollback" : "upgrade"} of` : back ? "Roll back" : "Upgrade"} {stage ? "" : on}{plural(current?.will ?? preview.data?.will ?? count, "agent")}
            </ReasonButton>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

interface PreviewProps {
  preview?: UpgradePreview;
  stale: boolean;
  loading: boolean;
  error: unknown;
  version: string;
  agents: readonly Agent[];
  /** What the agents will do, and what the hosts do after it. */
  will: string;
  after: string;
}

function Preview({ preview, stale, loading, error, version, agents, will, after }: PreviewProps) {
  if (error) {
    return <Callout kind="error" title="The preview failed">{messageOf(error)}</Callout>;
  }
  if (!preview) {
    return <Text size="sm" c="dimmed" role="status">{loading ? "Loading the preview…" : "Choose a version to see a preview."}</Text>;
  }
  // Agents that are not upgraded come first: the operator has to decide about them.
  const items = [...preview.items].sort((a, b) => Number(a.will) - Number(b.will));
  return (
    <section aria-label="Preview" className={classes.preview} data-stale={stale || undefined}>
      <Text size="sm" fw={600} className={classes.verdict} role="status">
        {preview.will > 0 ? `${plural(preview.will, "agent")} will ${will}` : `No agent will ${will}`}
        {preview.wont > 0 ? `; ${preview.wont.toLocaleString()} will not` : ""}
      </Text>
      <ScrollArea.Autosize mah={230} type="auto" viewportProps={{ tabIndex: 0, "aria-label": "Each agent" }}>
        <ul className={classes.items}>
          {items.slice(0, LINES).map((item) => <PreviewLine key={item.agent_id} item={item} to={preview.version || version} agents={agents} />)}
        </ul>
        {items.length > LINES ? <Text size="xs" c="dimmed" p="xs">and {(items.length - LINES).toLocaleString()} more</Text> : null}
      </ScrollArea.Autosize>
      {preview.will > 0 ? <Text size="xs" c="dimmed" px="sm" py={6}>{after}</Text> : null}
    </section>
  );
}

function PreviewLine({ item, to, agents }: { item: UpgradePreviewItem; to: string; agents: readonly Agent[] }) {
  const agent = agents.length <= LINES ? agents.find((a) => a.id === item.agent_id) : undefined;
  return (
    <li className={classes.item} data-will={item.will || undefined}>
      {item.will ? <IconCheck size={15} aria-label="Will be upgraded:" /> : <IconMinus size={15} aria-label="Will not be upgraded:" />}
      <span className={classes.host}>{item.hostname || (agent ? hostOf(agent) : item.agent_id)}</span>
      <span className={`mono ${classes.versions}`}>
        {item.version || (item.will ? "none" : "")}
        {item.will ? <><IconArrowRight size={12} aria-label="to" />{to}</> : null}
      </span>
      {item.reason ? (
        <span className={classes.why}>
          {item.will ? <IconInfoCircle size={13} aria-hidden /> : null} {item.reason}
        </span>
      ) : null}
    </li>
  );
}
