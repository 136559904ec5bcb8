import { Stack, TextInput } from "@mantine/core";
import { isOwned } from "~/util/owned";
import { sentence } from "~/util/words";
import { Callout } from "./Callout";

interface Props {
  /** Of the order. */
  error: unknown;
  typed: string;
  onType: (name: string) => void;
}

/** Offers to take over agents that belong to a fleet, after the server has refused an order for them. */
export function TakeOver({ error, typed, onType }: Props) {
  if (!isOwned(error)) return null;
  return (
    <Callout kind="warning" title="These agents belong to a fleet. Nothing was started.">
      <Stack gap="xs">
        <span>{sentence(error.message)}</span>
        <TextInput
          label="To take the agents over, type the name of the fleet"
          description="This suspends the fleet: Muster leaves its agents alone until it is resumed or its spec changes."
          autoComplete="off"
          spellCheck={false}
          value={typed}
          onChange={(e) => onType(e.currentTarget.value)}
        />
      </Stack>
    </Callout>
  );
}
