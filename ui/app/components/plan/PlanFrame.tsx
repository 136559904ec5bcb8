/** The page on which a plan is written: a form beside its text, the preview below them, and the buttons always in sight. */
import { SegmentedControl } from "@mantine/core";
import { type ReactNode, useRef } from "react";
import type { Fault } from "~/util/plan/planYaml";
import { Section } from "../base/Page";
import classes from "./Plan.module.css";
import { YamlEditor } from "./YamlEditor";

interface Props {
  form: ReactNode;
  text: string;
  faults: Fault[];
  onText: (text: string) => void;
  /** The command that does the same with this text in a file. */
  command: string;
  view: "form" | "yaml";
  onView: (view: "form" | "yaml") => void;
  preview: ReactNode;
  /** The state of the plan in a line; a click shows the preview, or the errors. */
  state: string;
  /** A remark on it. */
  remark?: string;
  bad?: boolean;
  buttons: ReactNode;
}

export function PlanFrame({ form, text, faults, onText, command, view, onView, preview, state, remark, bad, buttons }: Props) {
  const below = useRef<HTMLDivElement>(null);
  const yaml = useRef<HTMLElement>(null);
  const show = () => {
    if (bad) onView("yaml");
    (bad ? yaml : below).current?.scrollIntoView({ block: "start" });
  };
  return (
    <>
      <div className={classes.tabs}>
        <SegmentedControl
          fullWidth
          aria-label="View"
          data={[
            { value: "form", label: "Form" },
            { value: "yaml", label: "YAML" },
          ]}
          value={view}
          onChange={(v) => onView(v as "form" | "yaml")}
        />
      </div>
      <div className={classes.page} data-view={view}>
        <section className={classes.form} aria-label="Form">
          {form}
        </section>
        <section className={classes.yaml} aria-label="YAML" ref={yaml}>
          <div className={classes.yamlBody}>
            <YamlEditor text={text} faults={faults} onChange={onText} />
          </div>
          <div className={classes.note}>
            The same file works on the command line: <span className="mono">{command}</span>
          </div>
        </section>
        <div className={classes.preview} ref={below}>
          <Section title="Preview">{preview}</Section>
        </div>
      </div>
      <div className={classes.foot}>
        <div className={classes.footText} data-bad={bad || undefined} role="status">
          {state ? (
            <button type="button" className={classes.toPreview} onClick={show}>
              {state}
            </button>
          ) : null}
          {remark ? <span>{remark}</span> : null}
        </div>
        <div className={classes.buttons}>{buttons}</div>
      </div>
    </>
  );
}
