/** The fields of a plan that may also be changed while its rollout is under way. What an empty field means is its placeholder. */
import { Checkbox, TextInput } from "@mantine/core";
import type { ReactNode } from "react";
import { fieldsOf, type PlanForm } from "~/util/plan/planForm";
import { faultOf } from "~/util/plan/planPreview";
import type { Fault } from "~/util/plan/planYaml";
import { Part } from "./FormParts";
import classes from "./Plan.module.css";
import { WindowsField } from "./WindowsField";

export interface FieldsProps {
  form: PlanForm;
  faults: readonly Fault[];
  /** The text is not YAML, so nothing can be changed in it. */
  disabled?: boolean;
  onChange: (change: Partial<PlanForm>) => void;
}

type Texts = "name" | "maxParallel" | "failureCount" | "failurePercent" | "retries" | "healthWait" | "soak";
type Flags = "lateJoiners" | "force" | "spread" | "approval" | "pauseOnSuccess";

interface More {
  inputMode?: "numeric" | "decimal";
  className?: string;
}

export const errorOf = ({ faults }: FieldsProps, key: keyof PlanForm): string | undefined => faultOf(faults, fieldsOf[key]);

export function textField(props: FieldsProps, key: Texts, label: string, placeholder: string, more: More = {}): ReactNode {
  return (
    <TextInput
      label={label}
      placeholder={placeholder}
      autoComplete="off"
      value={props.form[key]}
      error={errorOf(props, key)}
      disabled={props.disabled}
      onChange={(e) => props.onChange({ [key]: e.currentTarget.value })}
      {...more}
    />
  );
}

export function checkField(props: FieldsProps, key: Flags, label: string, description?: string): ReactNode {
  return (
    <Checkbox
      label={label}
      description={description}
      checked={props.form[key]}
      error={errorOf(props, key)}
      disabled={props.disabled}
      onChange={(e) => props.onChange({ [key]: e.currentTarget.checked })}
    />
  );
}

export const parallelField = (props: FieldsProps): ReactNode => textField(props, "maxParallel", "At one time, at most", "500 hosts", { inputMode: "numeric" });

export function StopPart(props: FieldsProps) {
  return (
    <Part title="Stop" note="The rollout pauses when too many hosts fail.">
      <div className={classes.fields}>
        {textField(props, "failureCount", "At failures", props.form.failurePercent ? "no limit" : "3", { inputMode: "numeric" })}
        {textField(props, "failurePercent", "Or above percent of attempts", "no limit", { inputMode: "decimal" })}
        {textField(props, "healthWait", "Healthy for", "10m")}
        {textField(props, "retries", "Retries of a host", "none", { inputMode: "numeric" })}
      </div>
    </Part>
  );
}

/** Children are further checks. */
export function TimePart({ children, ...props }: FieldsProps & { children?: ReactNode }) {
  return (
    <Part title="Time">
      <div className={classes.fields}>
        {textField(props, "soak", "Wait between batches", "none")}
        <div className={classes.checks}>
          {checkField(props, "pauseOnSuccess", "Pause after each batch")}
          {children}
        </div>
        <WindowsField
          windows={props.form.windows}
          error={errorOf(props, "windows")}
          disabled={props.disabled}
          onChange={(windows) => props.onChange({ windows })}
        />
      </div>
    </Part>
  );
}
