import { TextInput } from "@mantine/core";

interface Props {
  name: string;
  value: string;
  onChange: (typed: string) => void;
}

/** Asks for a name before something that is hard to undo. */
export function TypedName({ name, value, onChange }: Props) {
  return (
    <TextInput
      label={<>Type <span className="mono">{name}</span> to confirm</>}
      autoComplete="off"
      spellCheck={false}
      value={value}
      onChange={(e) => onChange(e.currentTarget.value)}
    />
  );
}
