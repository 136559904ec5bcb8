import { Stack, TextInput } from "@mantine/core";
import { isOwned } from "~/util/fleet/owned";
import { sentence } from "~/util/words";
import { Callout } from "../base/Callout";

interface Props {
  /** Of the order. */
  error: unknown;
  /** The preview of the order shows such agents. */
  owned?: boolean;
  typed: string;
  onType: (name: string) => void;
}

/** Offers to take over agents that belong to a fleet, if the preview of an order shows them or the server has refused it. */
export function TakeOver({ error, owned, typed, onType }: Props) {
  const refused = isOwned(error);
  if (!refused && !owned) return null;
  return (
    <Callout kind="warning" title={refused ? "These agents belong to a fleet. Nothing was started." : "Agents that belong to a fleet"}>
      <Stack gap="xs">
        {refused ? <span>{sentence(error.message)}</span> : null}
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
