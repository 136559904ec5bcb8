/** The form that changes a policy. Only a difference that was reviewed is saved. */
import { ActionIcon, Autocomplete, Button, NumberInput, Textarea, TextInput } from "@mantine/core";
import { IconPlus, IconX } from "@tabler/icons-react";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { policyQuery, updatePolicy } from "~/api/policies";
import { keys, versionsQuery } from "~/api/queries";
import type { Policy } from "~/api/types";
import { Callout } from "~/components/base/Callout";
import { Dialog } from "~/components/base/Dialog";
import { ReasonButton } from "~/components/base/ReasonButton";
import { TextLink } from "~/components/base/TextLink";
import { DiffView } from "~/components/fleet/DiffView";
import { WindowsField } from "~/components/plan/WindowsField";
import { useChange } from "~/hooks/useChange";
import classes from "~/pages/Admin.module.css";
import { bodyOf, formOf, type PolicyForm, type PolicySettings, settingsOf, settingsText, wantedOf } from "~/util/policy/policy";
import { plural } from "~/util/words";

const EXAMPLE = `- name: web
  runtime: systemd
  version: 2.4.0        # installed where a host has none
  variables: {port: "8080"}
  health:
    wait_seconds: 300
    checks:
      - {name: front, http: "http://127.0.0.1:8080/health"}`;

export function PolicyEditor({ policy, onClose }: { policy: Policy; onClose: () => void }) {
  // What the form began with: the policy may change meanwhile.
  const [base] = useState(policy);
  const [form, setForm] = useState<PolicyForm>(() => formOf(base));
  const published = useQuery(versionsQuery);
  const [reviewed, setReviewed] = useState<PolicySettings | null>(null);
  const set = (change: Partial<PolicyForm>) => setForm((old) => ({ ...old, ...change }));
  const setRequired = (index: number, change: Partial<PolicyForm["required"][number]>) =>
    set({ required: form.required.map((r, i) => (i === index ? { ...r, ...change } : r)) });
  const { settings, errors } = wantedOf(form, base);
  const unchanged = settings !== undefined && settingsText(settings) === settingsText(settingsOf(base));
  return (
    <>
      <form
        className={classes.form}
        onSubmit={(e) => {
          e.preventDefault();
          if (settings && !unchanged) setReviewed(settings);
        }}
      >
        {policy.revision !== base.revision ? (
          <Callout kind="warning" title={`${policy.updated_by} has changed this policy meanwhile`}>
            You edit revision {base.revision}; the current one is {policy.revision}. Cancel and edit again to see it.
          </Callout>
        ) : null}
        <div className={classes.fields}>
          <TextInput label="Name" value={form.name} error={errors.name} onChange={(e) => set({ name: e.currentTarget.value })} />
          <TextInput
            label="Hosts become inactive after (hours)"
            placeholder="never"
            inputMode="decimal"
            value={form.inactiveHours}
            error={errors.inactiveHours}
            onChange={(e) => set({ inactiveHours: e.currentTarget.value })}
          />
        </div>
        <Textarea label="Description" autosize minRows={2} value={form.description} onChange={(e) => set({ description: e.currentTarget.value })} />
        <fieldset className={classes.set}>
          <legend>Versions that its hosts are upgraded to automatically</legend>
          <p className={classes.note}>
            The server starts rollouts until this share of the hosts runs the version. Without a line it starts none.{" "}
            <TextLink to="/guard-rails" inherit underline="always">
              Freezes and the exposure budget
            </TextLink>{" "}
            hold for them too.
          </p>
          {form.required.map((r, i) => (
            <div key={i} className={classes.row}>
              <Autocomplete size="xs" label="Version" data={published.data ?? []} value={r.version} onChange={(version) => setRequired(i, { version })} />
              <NumberInput label="Percent of the hosts" min={0} max={100} value={r.percentage} onChange={(v) => setRequired(i, { percentage: String(v) })} />
              <ActionIcon
                size="md"
                aria-label={`Remove the line of ${r.version || "no version"}`}
                onClick={() => set({ required: form.required.filter((_, k) => k !== i) })}
              >
                <IconX size={14} aria-hidden />
              </ActionIcon>
            </div>
          ))}
          {errors.required ? <Callout kind="error">{errors.required}</Callout> : null}
          <div>
            <Button
              variant="default"
              leftSection={<IconPlus size={14} aria-hidden />}
              onClick={() => set({ required: [...form.required, { version: "", percentage: "100" }] })}
            >
              Add version
            </Button>
          </div>
        </fieldset>
        <fieldset className={classes.set}>
          <legend>When they are upgraded automatically</legend>
          <p className={classes.note}>
            {form.windows.length > 0
              ? "No automatic upgrade begins at other times. Orders and other rollouts may."
              : "At any time, unless there is a maintenance window."}
          </p>
          <WindowsField windows={form.windows} onChange={(windows) => set({ windows })} />
        </fieldset>
        <Textarea
          className={classes.code}
          label="Components (YAML)"
          placeholder={EXAMPLE}
          autosize
          minRows={8}
          maxRows={30}
          spellCheck={false}
          value={form.components}
          error={errors.components}
          description="What its hosts run. A new version here changes no host that has one: an upgrade or a rollout of the component does."
          onChange={(e) => set({ components: e.currentTarget.value })}
        />
        <div className={classes.sticky}>
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <ReasonButton type="submit" reason={!settings ? "Correct the marked fields first." : unchanged ? "Nothing has changed." : null}>
            Review changes
          </ReasonButton>
        </div>
      </form>
      {reviewed ? <Review base={base} wanted={reviewed} onSaved={onClose} onClose={() => setReviewed(null)} /> : null}
    </>
  );
}

function Review({ base, wanted, onSaved, onClose }: { base: Policy; wanted: PolicySettings; onSaved: () => void; onClose: () => void }) {
  const client = useQueryClient();
  const save = useChange({
    run: async (why: string) => {
      // The server accepts a change of any revision, so a change of somebody else would be undone silently.
      const current = await client.fetchQuery({ ...policyQuery(base.id), staleTime: 0 });
      if (current.revision !== base.revision)
        throw new Error(`${current.updated_by} has changed the policy to revision ${current.revision} since you began. Cancel and edit again.`);
      return updatePolicy(base.id, bodyOf(wanted, base), why);
    },
    done: `The policy ${wanted.name} is changed`,
    stale: [keys.policies, keys.trails],
    after: onSaved,
  });
  return (
    <Dialog
      title={`Change ${base.name} for ${plural(base.agents, "host")}?`}
      confirm="Save changes"
      size="xl"
      why="optional"
      busy={save.isPending}
      error={save.error}
      onConfirm={(why) => save.mutate(why)}
      onClose={onClose}
    >
      <div className={classes.tight}>
        <span>
          Its hosts get the new revision at their next check-in, mostly within seconds.
          {base.is_managed ? " The policy is managed: something else may set it back." : ""}
        </span>
        <div className={classes.frame}>
          <DiffView before={settingsText(settingsOf(base))} after={settingsText(wanted)} label="What changes" />
        </div>
      </div>
    </Dialog>
  );
}
