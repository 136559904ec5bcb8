/** A text filter: a draft until Enter, or until the field is left. */
import { TextInput, type TextInputProps } from "@mantine/core";
import { useEffect, useState } from "react";

interface Props extends Pick<TextInputProps, "placeholder" | "w" | "leftSection" | "type" | "className"> {
  label: string;
  value: string | undefined;
  onApply: (value: string | undefined) => void;
}

export function DraftInput({ label, value = "", onApply, ...rest }: Props) {
  const [draft, setDraft] = useState(value);
  // Another value in the address, such as after Back, replaces the draft.
  useEffect(() => setDraft(value), [value]);
  const apply = () => {
    if (draft.trim() !== value) onApply(draft.trim() || undefined);
  };
  return (
    <TextInput
      {...rest}
      aria-label={label}
      value={draft}
      autoComplete="off"
      spellCheck={false}
      onChange={(e) => setDraft(e.currentTarget.value)}
      onBlur={apply}
      onKeyDown={(e) => {
        if (e.key === "Enter") apply();
        if (e.key === "Escape") setDraft(value);
      }}
    />
  );
}
