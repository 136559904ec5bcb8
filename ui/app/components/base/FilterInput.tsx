/** A field that narrows a list to the rows with its words. */
import { CloseButton, TextInput } from "@mantine/core";
import { IconSearch } from "@tabler/icons-react";

interface Props {
  label: string;
  value: string;
  onChange: (value: string) => void;
}

export function FilterInput({ label, value, onChange }: Props) {
  return (
    <TextInput
      type="search"
      aria-label={label}
      placeholder={label}
      w={280}
      leftSection={<IconSearch size={14} aria-hidden />}
      rightSection={value ? <CloseButton size="xs" aria-label="Clear" onClick={() => onChange("")} /> : null}
      value={value}
      onChange={(e) => onChange(e.currentTarget.value)}
    />
  );
}
