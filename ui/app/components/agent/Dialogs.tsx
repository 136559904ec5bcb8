/** The dialog of a command of an agent, by the command's name. */
import type { Agent } from "~/api/types";
import { DiagnosticsDialog } from "~/components/agents/DiagnosticsDialog";
import { ReassignDialog } from "~/components/agents/ReassignDialog";
import { UnenrollDialog } from "~/components/agents/UnenrollDialog";
import { RollbackDialog } from "~/components/upgrade/RollbackDialog";
import { UpgradeDialog } from "~/components/upgrade/UpgradeDialog";

interface Props {
  command: string;
  agent: Agent;
  onClose: () => void;
}

export function AgentDialog({ command, agent, onClose }: Props) {
  const chosen = [agent];
  switch (command) {
    case "upgrade":
      return <UpgradeDialog chosen={chosen} onClose={onClose} />;
    case "stage":
      return <UpgradeDialog chosen={chosen} stage onClose={onClose} />;
    case "rollback":
    case "forward":
      return <RollbackDialog chosen={chosen} onClose={onClose} />;
    case "unenroll":
      return <UnenrollDialog chosen={chosen} onClose={onClose} />;
    case "diagnostics":
      return <DiagnosticsDialog chosen={chosen} onClose={onClose} />;
    case "reassign":
      return <ReassignDialog chosen={chosen} onClose={onClose} />;
    default:
      return null;
  }
}
