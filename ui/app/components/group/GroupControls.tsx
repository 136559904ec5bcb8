import { useState } from "react";
import type { Group } from "~/api/types";
import { primaryOf, whyNotGroup, type GroupCommand } from "~/util/group";
import { ReasonButton } from "../ReasonButton";
import { GroupDialog } from "./GroupDialog";

const controls: { label: string; commands: GroupCommand[] }[] = [
  { label: "Resume…", commands: ["resume"] },
  { label: "Pause…", commands: ["pause", "pause_now"] },
  { label: "Leave a member out…", commands: ["skip"] },
  { label: "Roll back…", commands: ["rollback"] },
  { label: "Cancel…", commands: ["cancel"] },
];

/** All commands on a group that is not a draft; a disabled one shows the reason. */
export function GroupControls({ group: g }: { group: Group }) {
  const [asked, setAsked] = useState<GroupCommand[] | null>(null);
  const primary = primaryOf(g);
  return (
    <>
      {controls.map((c) => (
        <ReasonButton
          key={c.label} size="sm" px="sm" variant={c.commands[0] === primary ? "filled" : "default"}
          reason={whyNotGroup(c.commands[0]!, g)} onClick={() => setAsked(c.commands)}
        >
          {c.label}
        </ReasonButton>
      ))}
      {asked ? <GroupDialog group={g} commands={asked} onClose={() => setAsked(null)} /> : null}
    </>
  );
}
