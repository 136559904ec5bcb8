import { Autocomplete, Textarea } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { componentsQuery, packagesQuery } from "~/api/queries";
import { type PlanForm, partsOf } from "~/util/plan/planForm";
import { versionsFor } from "~/util/plan/planPreview";
import { strategyChoices } from "~/util/rollout/strategies";
import { AmountField, Choices, Part } from "./FormParts";
import { HostsField } from "./HostsField";
import { checkField, errorOf, type FieldsProps, parallelField, StopPart, TimePart, textField } from "./LimitFields";
import classes from "./Plan.module.css";

/** The fields of a rollout's plan. What an empty field means is its placeholder. */
export function PlanFields({ form: f, faults, disabled, onChange: set }: FieldsProps) {
  const packages = useQuery(packagesQuery);
  const components = useQuery(componentsQuery);
  const versions = useMemo(() => versionsFor(packages.data, f.component), [packages.data, f.component]);
  const names = useMemo(
    () => [...new Set([...(components.data ?? []).map((c) => c.name), ...(packages.data ?? []).flatMap((p) => p.component ?? [])])].sort(),
    [components.data, packages.data],
  );
  const props = { form: f, faults, disabled, onChange: set };
  const error = (key: keyof PlanForm) => errorOf(props, key);
  const parts = partsOf(f.kind);
  return (
    <>
      <Part title="What">
        <div className={classes.fields}>
          <Autocomplete
            size="xs"
            label="Component"
            placeholder="The agents themselves"
            data={names}
            value={f.component}
            error={error("component")}
            disabled={disabled}
            onChange={(component) => set({ component })}
          />
          <Autocomplete
            size="xs"
            label="Version"
            placeholder="Choose or type a version"
            data={versions}
            limit={50}
            value={f.version}
            error={error("version")}
            disabled={disabled}
            className={classes.query}
            onChange={(version) => set({ version })}
          />
          {textField(props, "name", "Name", "Web to 2.5.0", { className: classes.whole })}
          <Textarea
            label="Why"
            placeholder="What changes, and what to look at"
            autosize
            minRows={1}
            maxRows={6}
            className={classes.whole}
            value={f.description}
            error={error("description")}
            disabled={disabled}
            onChange={(e) => set({ description: e.currentTarget.value })}
          />
        </div>
      </Part>
      <Part title="Hosts">
        <HostsField hosts={f.hosts} error={error("hosts")} disabled={disabled} onChange={(hosts) => set({ hosts })} />
      </Part>
      <Part title="Strategy">
        <Choices label="Strategy" choices={strategyChoices} value={f.kind} disabled={disabled} onChange={(kind) => set({ kind })} />
        {error("kind") ? <div className={classes.error}>{error("kind")}</div> : null}
        <div className={classes.fields}>
          {parts.canary ? (
            <AmountField
              label="Canaries"
              value={f.canary}
              placeholder={f.spread ? "one of each kind" : "10"}
              error={error("canary")}
              disabled={disabled}
              onChange={(canary) => set({ canary })}
            />
          ) : null}
          {parts.batch ? (
            <AmountField
              label="Batches of"
              value={f.batch}
              placeholder="10 percent"
              error={error("batch")}
              disabled={disabled}
              onChange={(batch) => set({ batch })}
            />
          ) : null}
          {parallelField(props)}
          {parts.canary ? (
            <div className={classes.checks}>
              {checkField(props, "approval", "Wait for an approval after the canaries")}
              {checkField(
                props,
                "spread",
                "Choose canaries of different kinds",
                "By operating system, architecture and version, unless the YAML names other labels",
              )}
            </div>
          ) : null}
        </div>
      </Part>
      <StopPart {...props} />
      <TimePart {...props}>{checkField(props, "lateJoiners", "Include hosts that match later")}</TimePart>
    </>
  );
}
