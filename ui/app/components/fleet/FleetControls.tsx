import { IconEdit } from "@tabler/icons-react";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import type { Fleet } from "~/api/types";
import { whyNotFleet, type FleetCommand } from "~/util/fleet";
import { ReasonButton } from "../ReasonButton";
import { FleetDialog } from "./FleetDialog";
import classes from "./Fleet.module.css";

/** All commands on a fleet; a disabled one shows the reason. */
export function FleetControls({ fleet: f, onEdit }: { fleet: Fleet; onEdit: () => void }) {
  const navigate = useNavigate();
  const [asked, setAsked] = useState<FleetCommand | null>(null);
  const controls: { label: string; command: FleetCommand }[] = [
    { label: "Resume…", command: "resume" },
    f.spec.paused ? { label: "Unpause…", command: "unpause" } : { label: "Pause…", command: "pause" },
    { label: "Force promotion…", command: "promote" },
    { label: "Delete…", command: "delete" },
  ];
  const primary = f.status?.suspended ? "resume" : f.spec.paused ? "unpause" : undefined;
  return (
    <>
      <ReasonButton size="sm" px="sm" variant={primary ? "default" : "filled"} leftSection={<IconEdit size={16} aria-hidden />} reason={null} onClick={onEdit}>Edit…</ReasonButton>
      {controls.map((c) => (
        <ReasonButton
          key={c.command} size="sm" px="sm" variant={c.command === primary ? "filled" : "default"} className={c.command === "delete" ? classes.danger : undefined}
          reason={whyNotFleet(c.command, f)} onClick={() => setAsked(c.command)}
        >
          {c.label}
        </ReasonButton>
      ))}
      {asked ? <FleetDialog fleet={f} command={asked} onClose={() => setAsked(null)} onDone={() => (asked === "delete" ? void navigate({ to: "/fleets" }) : undefined)} /> : null}
    </>
  );
}
