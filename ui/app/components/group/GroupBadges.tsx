import { type Icon, IconArrowBackUp, IconCircle, IconCircleMinus, IconClock, IconPlayerPause } from "@tabler/icons-react";
import type { GroupMemberState, GroupState } from "~/api/types";
import { groupStateLabel, groupTone, memberLabel, memberTone } from "~/util/group/group";
import { Badge } from "../base/Badge";

const groups: Partial<Record<GroupState, Icon>> = {
  draft: IconCircle,
  paused: IconPlayerPause,
  rolling_back: IconArrowBackUp,
  rolled_back: IconArrowBackUp,
  cancelled: IconCircleMinus,
};
const members: Partial<Record<GroupMemberState, Icon>> = {
  pending: IconClock,
  skipped: IconCircleMinus,
  cancelled: IconCircleMinus,
  rolled_back: IconArrowBackUp,
};

/** A newer server may have states that this page does not know; they are shown as they are. */
export function GroupBadge({ state, strong }: { state: GroupState; strong?: boolean }) {
  return (
    <Badge tone={groupTone[state] ?? "away"} icon={groups[state]} strong={strong}>
      {groupStateLabel[state] ?? state}
    </Badge>
  );
}

export function MemberBadge({ state }: { state: GroupMemberState }) {
  return (
    <Badge tone={memberTone[state] ?? "away"} icon={members[state]}>
      {memberLabel[state] ?? state}
    </Badge>
  );
}
