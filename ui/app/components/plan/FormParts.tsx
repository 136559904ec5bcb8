/** Fields that the forms of plans are made of. */
import { Select, TextInput } from "@mantine/core";
import { type KeyboardEvent, type ReactNode, useId, useRef, useState } from "react";
import type { Amount } from "~/util/plan/planForm";
import classes from "./Plan.module.css";

/** A group of fields with a heading. */
export function Part({ title, note, children }: { title: string; note?: string; children: ReactNode }) {
  return (
    <fieldset className={classes.part}>
      <legend className={classes.legend}>
        {title}
        {note ? <span>{note}</span> : null}
      </legend>
      {children}
    </fieldset>
  );
}

interface AmountProps {
  label: string;
  value: Amount;
  /** What an empty field means. */
  placeholder: string;
  error?: string;
  disabled?: boolean;
  onChange: (value: Amount) => void;
}

/** A number of hosts, or a percentage of them. */
export function AmountField({ label, value, placeholder, error, disabled, onChange }: AmountProps) {
  const id = useId();
  // Without a number the unit is nowhere in the plan, so it is kept here.
  const [unit, setUnit] = useState(value.unit);
  const shown = value.value === "" ? unit : value.unit;
  return (
    <div>
      <label className={classes.label} htmlFor={id}>
        {label}
      </label>
      <div className={classes.amount}>
        <TextInput
          id={id}
          inputMode="decimal"
          placeholder={placeholder}
          value={value.value}
          error={!!error}
          aria-describedby={error ? `${id}-error` : undefined}
          disabled={disabled}
          onChange={(e) => onChange({ unit: shown, value: e.currentTarget.value })}
        />
        <Select
          aria-label={`Unit of ${label.toLowerCase()}`}
          data={[
            { value: "hosts", label: "hosts" },
            { value: "percent", label: "percent" },
          ]}
          value={shown}
          allowDeselect={false}
          disabled={disabled}
          onChange={(u) => {
            setUnit(u as Amount["unit"]);
            if (value.value !== "") onChange({ unit: u as Amount["unit"], value: value.value });
          }}
        />
      </div>
      {error ? (
        <div className={classes.error} id={`${id}-error`}>
          {error}
        </div>
      ) : null}
    </div>
  );
}

export interface Choice {
  value: string;
  label: string;
  text: string;
}

/** One of a few choices, each with a sentence. Arrows move between them, as between radio buttons. */
export function Choices({
  label,
  choices,
  value,
  disabled,
  onChange,
}: {
  label: string;
  choices: readonly Choice[];
  value: string;
  disabled?: boolean;
  onChange: (value: string) => void;
}) {
  const group = useRef<HTMLDivElement>(null);
  const at = choices.findIndex((c) => c.value === value);
  const onKeyDown = (e: KeyboardEvent, index: number) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[e.key];
    if (!step || disabled) return;
    e.preventDefault();
    const next = (index + step + choices.length) % choices.length;
    onChange(choices[next]!.value);
    group.current?.querySelectorAll("button")[next]?.focus();
  };
  return (
    <div className={classes.kinds} role="radiogroup" aria-label={label} ref={group}>
      {choices.map((c, i) => (
        <button
          key={c.value}
          type="button"
          role="radio"
          aria-checked={c.value === value}
          aria-disabled={disabled || undefined}
          tabIndex={i === Math.max(0, at) ? 0 : -1}
          className={classes.kind}
          onClick={() => {
            if (!disabled) onChange(c.value);
          }}
          onKeyDown={(e) => onKeyDown(e, i)}
        >
          <b>{c.label}</b>
          <span>{c.text}</span>
        </button>
      ))}
    </div>
  );
}
