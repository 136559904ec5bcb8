/** How far a version may spread before it has proven itself, and how much of that is used. */
import { Button, Stack, Switch, Textarea, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { setExposure } from "~/api/guardRails";
import { exposureQuery, keys, rolloutsQuery } from "~/api/queries";
import type { ExposureRule } from "~/api/types";
import { Dialog } from "~/components/base/Dialog";
import { LoadError, Loading, Section } from "~/components/base/Page";
import { TextLink } from "~/components/base/TextLink";
import { Ago } from "~/components/base/Time";
import { useChange } from "~/hooks/useChange";
import classes from "~/pages/Admin.module.css";
import { type ExposureForm, exposureText, formOf, isProven, ruleOf, share, type Use, usesOf } from "~/util/guardrail/guardRails";

export function ExposureBudget() {
  const rule = useQuery(exposureQuery);
  const rollouts = useQuery(rolloutsQuery);
  const [editing, setEditing] = useState(false);
  const r = rule.data;
  const uses = usesOf(rollouts.data?.items ?? []);
  return (
    <Section
      title="Exposure budget"
      aside={
        r ? (
          <Button size="compact-sm" variant="default" onClick={() => setEditing(true)}>
            Change budget…
          </Button>
        ) : null
      }
    >
      {rule.isError ? <LoadError what="The exposure budget" error={rule.error} onRetry={() => void rule.refetch()} /> : null}
      {rule.isPending ? <Loading rows={2} /> : null}
      {r ? (
        <div className={classes.tight}>
          <p className={classes.note}>
            <strong className={classes.strong}>{exposureText(r)}</strong> A rollout that could exceed it does not start, and one that would exceed it is paused.
            {r.updated_by ? (
              <>
                {" "}
                Set by {r.updated_by} <Ago at={r.updated_at} />.
              </>
            ) : null}
          </p>
          {r.enabled && uses.length === 0 ? <p className={classes.note}>No active rollout uses it now.</p> : null}
          {r.enabled ? (
            <div>
              {uses.map((u) => (
                <UseBar key={u.exposure.version} use={u} />
              ))}
            </div>
          ) : null}
        </div>
      ) : null}
      {editing && r ? <ExposureDialog rule={r} onClose={() => setEditing(false)} /> : null}
    </Section>
  );
}

function UseBar({ use: { exposure: e, rollouts } }: { use: Use }) {
  const proven = isProven(e);
  const part = share(e);
  const text = proven
    ? `on ${e.exposed.toLocaleString()} hosts; proven after ${Math.floor(e.healthy_hours).toLocaleString()} healthy agent-hours, so without a limit`
    : `on ${e.exposed.toLocaleString()} of ${e.limit.toLocaleString()} hosts that may have it, ${e.healthy_hours < 1 ? "less than 1" : Math.floor(e.healthy_hours).toLocaleString()} of ${e.needed_hours.toLocaleString()} healthy agent-hours`;
  return (
    <div className={classes.use}>
      <div className={classes.useHead}>
        <span>
          <strong className="mono">{e.version}</strong> {text}
        </span>
        <span className={classes.inline}>
          {rollouts.map((r) => (
            <TextLink key={r.id} to="/rollouts/$rolloutId" params={{ rolloutId: r.id }} inherit underline="always">
              {r.plan.name}
            </TextLink>
          ))}
        </span>
      </div>
      {proven ? null : (
        <div className={classes.bar} role="img" aria-label={`${Math.round(part * 100)} % of the budget of ${e.version} is used`}>
          <div className={classes.fill} data-tone={part >= 1 ? "bad" : part >= 0.8 ? "wait" : undefined} style={{ width: `${Math.max(1, part * 100)}%` }} />
        </div>
      )}
      {e.tightest && !proven ? (
        <span className={classes.sub}>
          Tightest: {e.tightest.exposed.toLocaleString()} of {e.tightest.limit.toLocaleString()} hosts with {e.tightest.label} {e.tightest.value}
        </span>
      ) : null}
    </div>
  );
}

function ExposureDialog({ rule, onClose }: { rule: ExposureRule; onClose: () => void }) {
  const [form, setForm] = useState<ExposureForm>(() => formOf(rule));
  const set = (change: Partial<ExposureForm>) => setForm((old) => ({ ...old, ...change }));
  const { rule: wanted, errors } = ruleOf(form);
  const save = useChange({
    run: (why: string) => setExposure(wanted!, why),
    done: form.enabled ? "The exposure budget is set" : "The exposure budget is off",
    stale: [keys.exposure, keys.rollouts, keys.trails],
    after: onClose,
  });
  return (
    <Dialog
      title="Change the exposure budget?"
      confirm="Set budget"
      why="optional"
      reason={wanted ? null : "Correct the marked fields first."}
      busy={save.isPending}
      error={save.error}
      onConfirm={(why) => save.mutate(why)}
      onClose={onClose}
    >
      <Stack gap="sm">
        <Switch
          label="Limit how far a new version may spread"
          data-autofocus
          checked={form.enabled}
          onChange={(e) => set({ enabled: e.currentTarget.checked })}
        />
        <div className={classes.fields}>
          <TextInput
            label="Percent of the fleet"
            inputMode="decimal"
            value={form.percent}
            error={errors.percent}
            onChange={(e) => set({ percent: e.currentTarget.value })}
          />
          <TextInput
            label="Healthy agent-hours"
            inputMode="decimal"
            value={form.hours}
            error={errors.hours}
            onChange={(e) => set({ hours: e.currentTarget.value })}
          />
        </div>
        <span className={classes.sub}>
          A version that has run healthy for so many hours, on all hosts together, is proven: the limit no longer applies to it.
        </span>
        <Textarea
          label="Within each value of a label (optional)"
          description="A label and a percentage on each line, such as “site 20”"
          autosize
          minRows={2}
          value={form.per}
          error={errors.per}
          onChange={(e) => set({ per: e.currentTarget.value })}
        />
      </Stack>
    </Dialog>
  );
}
