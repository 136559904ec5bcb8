import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import type { Rollout } from "~/api/types";
import { needsApproval, whyNot, type Command } from "~/util/rollout";
import { useClock } from "../Now";
import { ReasonButton } from "../ReasonButton";
import { CommandDialog } from "./CommandDialog";

interface Control {
  label: string;
  commands: Command[];
}

/** All commands on a rollout that is not a draft; a disabled one shows the reason. */
export function Controls({ rollout: r }: { rollout: Rollout }) {
  const navigate = useNavigate();
  const now = useClock();
  const [asked, setAsked] = useState<Control | null>(null);
  const next = nextStep(r, now);
  const controls: Control[] = [
    ...(needsApproval(r) ? [{ label: "Approve…", commands: ["approve"] as Command[] }] : []),
    { label: "Resume…", commands: ["resume"] },
    { label: "Pause…", commands: ["pause", "pause_now"] },
    { label: "Force…", commands: ["force"] },
    { label: "Retry failed…", commands: ["retry"] },
    { label: "Roll back…", commands: ["rollback_failed", "rollback_all"] },
    { label: "Cancel…", commands: ["cancel"] },
  ];
  return (
    <>
      {controls.map((c) => {
        const reasons = c.commands.map((command) => whyNot(command, r, now));
        return (
          <ReasonButton
            key={c.label}
            size="sm"
            px="sm"
            variant={c.commands[0] === next ? "filled" : "default"}
            reason={reasons.includes(null) ? null : reasons[reasons.length - 1]!}
            onClick={() => setAsked(c)}
          >
            {c.label}
          </ReasonButton>
        );
      })}
      {asked ? (
        <CommandDialog
          rollout={r}
          commands={asked.commands}
          onClose={() => setAsked(null)}
          onDone={(answer) => {
            if (answer.id !== r.id) void navigate({ to: "/rollouts/$rolloutId", params: { rolloutId: answer.id } });
          }}
        />
      ) : null}
    </>
  );
}

/** The command that an operator most likely needs. */
function nextStep(r: Rollout, now: number): Command | undefined {
  if (r.waiting?.some((w) => w.code === "approval") && !whyNot("approve", r, now)) return "approve";
  if (r.state === "paused") return r.stop && r.stop.kind !== "operator" && r.stop.kind !== "success" ? undefined : "resume";
  return undefined;
}
