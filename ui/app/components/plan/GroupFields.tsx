import { Autocomplete, Checkbox, Textarea, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { packagesQuery } from "~/api/queries";
import type { GroupPlan } from "~/api/types";
import { policyText } from "~/util/group/group";
import { type GroupForm, membersOf, writeGroupForm, writeMemberVersion } from "~/util/group/groupForm";
import { faultOf, versionsFor } from "~/util/plan/planPreview";
import type { Fault } from "~/util/plan/planYaml";
import { Choices, Part } from "./FormParts";
import classes from "./Plan.module.css";

interface Props {
  form: GroupForm;
  /** What the text means, as far as it is written. */
  plan?: GroupPlan;
  text: string;
  faults: readonly Fault[];
  /** The text is not YAML, so nothing can be changed in it. */
  disabled: boolean;
  onText: (text: string) => void;
}

const labels: Record<GroupPlan["failure_policy"], string> = { partial_ok: "Keep what is done", rollback_all: "Roll back all", manual: "Ask" };
const policies = (Object.keys(labels) as GroupPlan["failure_policy"][]).map((value) => ({ value, label: labels[value], text: `${policyText[value]}.` }));

/** The fields of a group's plan. Its members are a list of plans, which the text has. */
export function GroupFields({ form: f, plan, text, faults, disabled, onText }: Props) {
  const packages = useQuery(packagesQuery);
  const set = (change: Partial<GroupForm>) => onText(writeGroupForm(text, change));
  const members = membersOf(plan);
  return (
    <>
      <Part title="What">
        <div className={classes.fields}>
          <TextInput
            label="Name"
            className={classes.whole}
            placeholder="Release 2.5.0"
            autoComplete="off"
            value={f.name}
            error={faultOf(faults, ["name"])}
            disabled={disabled}
            onChange={(e) => set({ name: e.currentTarget.value })}
          />
          <Textarea
            label="Why"
            className={classes.whole}
            placeholder="What changes, and what to look at"
            autosize
            minRows={1}
            maxRows={6}
            value={f.description}
            error={faultOf(faults, ["description"])}
            disabled={disabled}
            onChange={(e) => set({ description: e.currentTarget.value })}
          />
        </div>
      </Part>
      <Part title="When a member fails">
        <Choices
          label="When a member fails"
          choices={policies}
          value={f.failurePolicy}
          disabled={disabled}
          onChange={(failurePolicy) => set({ failurePolicy })}
        />
        <Checkbox
          label="Start later members although the fleet has changed since the preview"
          checked={f.acceptDrift}
          disabled={disabled}
          onChange={(e) => set({ acceptDrift: e.currentTarget.checked })}
        />
      </Part>
      <Part title="Versions of the members" note="Members begin in this order, each when the one before it is done.">
        <div className={classes.fields}>
          {members.map((m, i) => (
            <Autocomplete
              size="xs"
              key={`${i} ${m.name}`}
              label={m.name || `Member ${i + 1}`}
              description={[m.component || "agents", m.soak ? `then ${m.soak} of waiting` : ""].filter(Boolean).join(", ")}
              className={classes.query}
              placeholder="Choose or type a version"
              data={versionsFor(packages.data, m.component)}
              limit={50}
              disabled={disabled || m.name === ""}
              value={m.version}
              error={faultOf(faults, [`desired_versions.${m.name}`, `members[${i}]`])}
              onChange={(version) => onText(writeMemberVersion(text, m.name, version))}
            />
          ))}
        </div>
        <div className={classes.hint}>Add members, and choose the hosts and the strategy of each, in the YAML.</div>
      </Part>
    </>
  );
}
