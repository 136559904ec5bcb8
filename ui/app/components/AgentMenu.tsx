import { ActionIcon, Menu } from "@mantine/core";
import { IconDots, IconFileText, IconLogout2, IconCircleArrowUp, IconArrowBackUp } from "@tabler/icons-react";
import { Link } from "@tanstack/react-router";
import type { Agent } from "~/api/types";
import { hostOf } from "~/util/facts";
import { whyNotRollback, whyNotUnenroll, whyNotUpgrade } from "~/util/allowed";
import classes from "./AgentMenu.module.css";

interface Props {
  agent: Agent;
  onUpgrade: (agent: Agent) => void;
  onRollback: (agent: Agent) => void;
  onUnenroll: (agent: Agent) => void;
}

export function AgentMenu({ agent, onUpgrade, onRollback, onUnenroll }: Props) {
  const host = hostOf(agent);
  const noUpgrade = whyNotUpgrade(agent);
  const noRollback = whyNotRollback(agent);
  const noUnenroll = whyNotUnenroll(agent);
  return (
    <Menu position="bottom-end" width={250} withinPortal>
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" aria-label={`Actions for ${host}`}>
          <IconDots size={16} aria-hidden />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item leftSection={<IconCircleArrowUp size={16} aria-hidden />} disabled={!!noUpgrade} onClick={() => onUpgrade(agent)}>
          Upgrade…{noUpgrade ? <span className={classes.why}>{noUpgrade}</span> : null}
        </Menu.Item>
        <Menu.Item leftSection={<IconArrowBackUp size={16} aria-hidden />} disabled={!!noRollback} onClick={() => onRollback(agent)}>
          Roll back…{noRollback ? <span className={classes.why}>{noRollback}</span> : null}
        </Menu.Item>
        <Menu.Item renderRoot={(props) => <Link {...props} to="/agents/$agentId" params={{ agentId: agent.id }} />} leftSection={<IconFileText size={16} aria-hidden />}>
          Details
        </Menu.Item>
        <Menu.Divider />
        <Menu.Item className={classes.danger} leftSection={<IconLogout2 size={16} aria-hidden />} disabled={!!noUnenroll} onClick={() => onUnenroll(agent)}>
          Unenroll…{noUnenroll ? <span className={classes.why}>{noUnenroll}</span> : null}
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
