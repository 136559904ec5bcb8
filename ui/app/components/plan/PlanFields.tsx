import { Autocomplete, Checkbox, Textarea, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { componentsQuery, packagesQuery } from "~/api/queries";
import { fieldsOf, partsOf, type PlanForm } from "~/util/planForm";
import { faultOf, versionsFor } from "~/util/planPreview";
import type { Fault } from "~/util/planYaml";
import { AmountField, Choices, Part, type Choice } from "./FormParts";
import { HostsField } from "./HostsField";
import { WindowsField } from "./WindowsField";
import classes from "./Plan.module.css";

interface Props {
  form: PlanForm;
  faults: readonly Fault[];
  /** The text is not YAML, so nothing can be changed in it. */
  disabled: boolean;
  onChange: (change: Partial<PlanForm>) => void;
}

const kinds: Choice[] = [
  { value: "canary", label: "Canary", text: "A few hosts first, then batches." },
  { value: "rolling", label: "Rolling", text: "Batch after batch." },
  { value: "rings", label: "Rings", text: "By a label of the hosts, ring 0 first." },
  { value: "lockstep", label: "Lockstep", text: "All switch together, or none does." },
  { value: "all_at_once", label: "All at once", text: "Every host as soon as it can." },
];

/** The fields of a rollout's plan. What an empty field means is its placeholder. */
export function PlanFields({ form: f, faults, disabled, onChange: set }: Props) {
  const packages = useQuery(packagesQuery);
  const components = useQuery(componentsQuery);
  const versions = useMemo(() => versionsFor(packages.data, f.component), [packages.data, f.component]);
  const names = useMemo(() => [...new Set([...(components.data ?? []).map((c) => c.name), ...(packages.data ?? []).flatMap((p) => p.component ?? [])])].sort(), [components.data, packages.data]);
  const error = (key: keyof PlanForm) => faultOf(faults, fieldsOf[key]);
  const text = (key: "name" | "maxParallel" | "failureCount" | "failurePercent" | "retries" | "healthWait" | "soak", label: string, placeholder: string, more: { inputMode?: "numeric" | "decimal"; className?: string } = {}) => (
    <TextInput label={label} placeholder={placeholder} autoComplete="off" value={f[key]} error={error(key)} disabled={disabled} onChange={(e) => set({ [key]: e.currentTarget.value })} {...more} />
  );
  const check = (key: "lateJoiners" | "force" | "spread" | "approval" | "pauseOnSuccess", label: string, description?: string) => (
    <Checkbox label={label} description={description} checked={f[key]} error={error(key)} disabled={disabled} onChange={(e) => set({ [key]: e.currentTarget.checked })} />
  );
  const parts = partsOf(f.kind);
  return (
    <>
      <Part title="What">
        <div className={classes.fields}>
          <Autocomplete size="xs" label="Component" placeholder="The agents themselves" data={names} value={f.component} error={error("component")} disabled={disabled} onChange={(component) => set({ component })} />
          <Autocomplete size="xs" label="Version" placeholder="Choose or type a version" data={versions} limit={50} value={f.version} error={error("version")} disabled={disabled} className={classes.query} onChange={(version) => set({ version })} />
          {text("name", "Name", "Web to 2.5.0", { className: classes.whole })}
          <Textarea label="Why" placeholder="What changes, and what to look at" autosize minRows={1} maxRows={6} className={classes.whole} value={f.description} error={error("description")} disabled={disabled} onChange={(e) => set({ description: e.currentTarget.value })} />
        </div>
      </Part>
      <Part title="Hosts">
        <HostsField hosts={f.hosts} error={error("hosts")} disabled={disabled} onChange={(hosts) => set({ hosts })} />
      </Part>
      <Part title="Strategy">
        <Choices label="Strategy" choices={kinds} value={f.kind} disabled={disabled} onChange={(kind) => set({ kind })} />
        {error("kind") ? <div className={classes.error}>{error("kind")}</div> : null}
        <div className={classes.fields}>
          {parts.canary ? <AmountField label="Canaries" value={f.canary} placeholder={f.spread ? "one of each kind" : "10"} error={error("canary")} disabled={disabled} onChange={(canary) => set({ canary })} /> : null}
          {parts.batch ? <AmountField label="Batches of" value={f.batch} placeholder="10 percent" error={error("batch")} disabled={disabled} onChange={(batch) => set({ batch })} /> : null}
          {text("maxParallel", "At one time, at most", "500 hosts", { inputMode: "numeric" })}
          {parts.canary ? <div className={classes.checks}>{check("approval", "Wait for an approval after the canaries")}{check("spread", "Choose canaries of different kinds", "By operating system, architecture and version, unless the YAML names other labels")}</div> : null}
        </div>
      </Part>
      <Part title="Stop" note="The rollout pauses when too many hosts fail.">
        <div className={classes.fields}>
          {text("failureCount", "At failures", f.failurePercent ? "no limit" : "3", { inputMode: "numeric" })}
          {text("failurePercent", "Or above percent of attempts", "no limit", { inputMode: "decimal" })}
          {text("healthWait", "Healthy for", "10m")}
          {text("retries", "Retries of a host", "none", { inputMode: "numeric" })}
        </div>
      </Part>
      <Part title="Time">
        <div className={classes.fields}>
          {text("soak", "Wait between batches", "none")}
          <div className={classes.checks}>{check("pauseOnSuccess", "Pause after each batch")}{check("lateJoiners", "Include hosts that match later")}</div>
          <WindowsField windows={f.windows} error={error("windows")} disabled={disabled} onChange={(windows) => set({ windows })} />
        </div>
      </Part>
    </>
  );
}
