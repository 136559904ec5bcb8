import { ActionIcon, Button, MultiSelect, TextInput } from "@mantine/core";
import { IconPlus, IconTrash } from "@tabler/icons-react";
import type { WindowForm } from "~/util/plan/planForm";
import classes from "./Plan.module.css";

interface Props {
  windows: WindowForm[];
  error?: string;
  disabled?: boolean;
  onChange: (windows: WindowForm[]) => void;
}

const DAYS = [
  ["mon", "Mon"],
  ["tue", "Tue"],
  ["wed", "Wed"],
  ["thu", "Thu"],
  ["fri", "Fri"],
  ["sat", "Sat"],
  ["sun", "Sun"],
].map(([value, label]) => ({ value: value!, label: label! }));

/** Times in which hosts may be upgraded. Without one every time is allowed. */
export function WindowsField({ windows, error, disabled, onChange }: Props) {
  const set = (i: number, change: Partial<WindowForm>) => onChange(windows.map((w, at) => (at === i ? { ...w, ...change } : w)));
  return (
    <div className={classes.checks}>
      {windows.map((w, i) => (
        <div key={i} className={classes.window} role="group" aria-label={`Maintenance window ${i + 1}`}>
          <MultiSelect
            label="Days"
            data={DAYS}
            value={w.days}
            placeholder={w.days.length === 0 ? "Every day" : undefined}
            disabled={disabled}
            onChange={(days) => set(i, { days })}
          />
          <TextInput label="From" placeholder="22:00" value={w.from} disabled={disabled} onChange={(e) => set(i, { from: e.currentTarget.value })} />
          <TextInput label="To" placeholder="04:00" value={w.to} disabled={disabled} onChange={(e) => set(i, { to: e.currentTarget.value })} />
          <TextInput label="Time zone" placeholder="UTC" value={w.zone} disabled={disabled} onChange={(e) => set(i, { zone: e.currentTarget.value })} />
          <ActionIcon aria-label={`Remove maintenance window ${i + 1}`} disabled={disabled} onClick={() => onChange(windows.filter((_, at) => at !== i))}>
            <IconTrash size={16} aria-hidden />
          </ActionIcon>
        </div>
      ))}
      {error ? <div className={classes.error}>{error}</div> : null}
      <div>
        <Button
          variant="default"
          leftSection={<IconPlus size={14} aria-hidden />}
          disabled={disabled}
          onClick={() => onChange([...windows, { days: [], from: "22:00", to: "04:00", zone: Intl.DateTimeFormat().resolvedOptions().timeZone }])}
        >
          Add a maintenance window
        </Button>
      </div>
    </div>
  );
}
