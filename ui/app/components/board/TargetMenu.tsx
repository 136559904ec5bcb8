import { ActionIcon, Menu } from "@mantine/core";
import { IconDotsVertical } from "@tabler/icons-react";
import { Link } from "@tanstack/react-router";
import type { Target } from "~/api/types";
import bar from "../base/CommandBar.module.css";
import type { TargetOrder } from "./TargetDialog";

interface Props {
  target: Target;
  onOrder: (target: Target, order: TargetOrder) => void;
}

const words: Record<TargetOrder, string> = { retry: "Retry this host…", skip: "Skip this host…" };

/** The orders for one host; those that are not possible show the server's reason. */
export function TargetMenu({ target: t, onOrder }: Props) {
  const host = t.hostname || t.agent_id;
  return (
    <Menu position="bottom-end" width={280} withinPortal>
      <Menu.Target>
        <ActionIcon size="sm" aria-label={`Actions for ${host}`}>
          <IconDotsVertical size={16} aria-hidden />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item className={bar.item} renderRoot={(props) => <Link {...props} to="/agents/$agentId" params={{ agentId: t.agent_id }} />}>
          Open {host}
        </Menu.Item>
        {(t.commands ?? []).map((c) => (
          <Menu.Item
            key={c.name}
            className={bar.item}
            data-refused={c.allowed ? undefined : true}
            closeMenuOnClick={c.allowed}
            onClick={() => c.allowed && onOrder(t, c.name as TargetOrder)}
          >
            {words[c.name as TargetOrder]}
            {c.allowed ? null : (
              <span className={bar.reason}>
                <span className="sr-only">Not possible now: </span>
                {c.reason}
              </span>
            )}
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
}
