/** The dialog of an order for the selected hosts. */

import type { Chosen } from "~/util/agents/chosen";
import { RollbackDialog } from "../upgrade/RollbackDialog";
import { UpgradeDialog } from "../upgrade/UpgradeDialog";
import type { Order } from "./BulkBar";
import { DiagnosticsDialog } from "./DiagnosticsDialog";
import { ReassignDialog } from "./ReassignDialog";
import { TagDialog } from "./TagDialog";
import { UnenrollDialog } from "./UnenrollDialog";

interface Props {
  order: Exclude<Order, "rollout">;
  chosen: Chosen;
  onClose: () => void;
  onDone: () => void;
}

export function OrderDialog({ order, ...rest }: Props) {
  switch (order) {
    case "upgrade":
      return <UpgradeDialog {...rest} />;
    case "stage":
      return <UpgradeDialog {...rest} stage />;
    case "tag":
      return <TagDialog {...rest} />;
    case "reassign":
      return <ReassignDialog {...rest} />;
    case "diagnostics":
      return <DiagnosticsDialog {...rest} />;
    case "rollback":
      return <RollbackDialog {...rest} />;
    case "unenroll":
      return <UnenrollDialog {...rest} />;
  }
}
