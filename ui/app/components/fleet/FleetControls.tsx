import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { fleetCommandsQuery } from "~/api/queries";
import type { Fleet } from "~/api/types";
import { type FleetCommand, fleetCommandLabel, fleetMenu } from "~/util/fleet/fleet";
import { CommandBar } from "../base/CommandBar";
import { FleetDialog } from "./FleetDialog";

/** The commands on a fleet: what its state asks for as a button, else its editor, and the rest in the menu. */
export function FleetControls({ fleet: f, onEdit }: { fleet: Fleet; onEdit: () => void }) {
  const navigate = useNavigate();
  const [asked, setAsked] = useState<FleetCommand | null>(null);
  const commands = useQuery(fleetCommandsQuery(f.metadata.name)).data ?? [];
  const command = commands.find((c) => c.name === asked);
  return (
    <>
      <CommandBar
        commands={fleetMenu(commands)}
        words={fleetCommandLabel}
        onCommand={(c) => (c.name === "edit" ? onEdit() : setAsked(c.name as FleetCommand))}
        shown={["edit"]}
      />
      {asked && command ? (
        <FleetDialog
          fleet={f}
          command={command}
          onClose={() => setAsked(null)}
          onDone={() => (asked === "delete" ? void navigate({ to: "/fleets" }) : undefined)}
        />
      ) : null}
    </>
  );
}
