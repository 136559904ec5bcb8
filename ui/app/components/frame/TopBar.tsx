/** The bar above every page: where you are, search, whether changes arrive live, colours and account. */
import { ActionIcon, Menu, Tooltip, UnstyledButton, useMantineColorScheme } from "@mantine/core";
import {
  IconCheck,
  IconChevronRight,
  IconDeviceDesktop,
  IconKey,
  IconLogout,
  IconMenu2,
  IconMoon,
  IconServer,
  IconSun,
  IconUserCircle,
} from "@tabler/icons-react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { call } from "~/api/client";
import { serverQuery, sessionQuery } from "~/api/queries";
import { useTrail } from "~/hooks/useCrumbs";
import { type StreamState, useStreamState } from "~/hooks/useEvents";
import classes from "./TopBar.module.css";

export function TopBar({ onMenu, children }: { onMenu: () => void; children?: ReactNode }) {
  return (
    <header className={classes.bar}>
      <ActionIcon className={classes.menu} size="lg" aria-label="Pages" onClick={onMenu}>
        <IconMenu2 size={18} aria-hidden />
      </ActionIcon>
      <Crumbs />
      <div className={classes.tools}>
        {children}
        <Live />
        <SchemeMenu />
        <UserMenu />
      </div>
    </header>
  );
}

function Crumbs() {
  const { name, crumbs } = useTrail();
  return (
    <nav className={classes.crumbs} aria-label="Breadcrumbs">
      <ol>
        {crumbs.map((c) => (
          <li key={c.to}>
            <Link to={c.to}>{c.label}</Link>
            <IconChevronRight size={12} aria-hidden />
          </li>
        ))}
        <li aria-current="page">{name}</li>
      </ol>
    </nav>
  );
}

const liveWords: Record<StreamState, { label: string; hint: string }> = {
  connecting: { label: "Connecting", hint: "Connecting to the event stream. Until then the page is refreshed every 30 seconds." },
  live: { label: "Live", hint: "Changes are shown as they happen." },
  reconnecting: { label: "Reconnecting", hint: "The event stream was interrupted. Until it is back the page is refreshed every 30 seconds." },
};

function Live() {
  const state = useStreamState();
  const { label, hint } = liveWords[state];
  return (
    <Tooltip label={hint}>
      <span className={classes.live} data-state={state} role="status" tabIndex={0}>
        <span className={classes.dot} aria-hidden />
        <span className={classes.liveWord}>{label}</span>
      </span>
    </Tooltip>
  );
}

const schemes = [
  { value: "light", label: "Light", Icon: IconSun },
  { value: "dark", label: "Dark", Icon: IconMoon },
  { value: "auto", label: "System default", Icon: IconDeviceDesktop },
] as const;

function SchemeMenu() {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const Current = (schemes.find((s) => s.value === colorScheme) ?? schemes[2]).Icon;
  return (
    <Menu position="bottom-end" width={190}>
      <Menu.Target>
        <ActionIcon size="lg" aria-label={`Colours: ${colorScheme}`}>
          <Current size={18} stroke={1.6} aria-hidden />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        {schemes.map(({ value, label, Icon }) => (
          <Menu.Item
            key={value}
            leftSection={<Icon size={16} aria-hidden />}
            rightSection={colorScheme === value ? <IconCheck size={14} aria-label="chosen" /> : null}
            onClick={() => setColorScheme(value)}
          >
            {label}
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
}

function UserMenu() {
  const client = useQueryClient();
  const navigate = useNavigate();
  const { data: session } = useQuery(sessionQuery);
  const { data: server } = useQuery(serverQuery);
  const logOut = useMutation({
    mutationFn: () => call("delete", "/api/v1/session"),
    onSuccess: async () => {
      await navigate({ to: "/login" });
      client.clear();
    },
  });
  return (
    <Menu position="bottom-end" width={220}>
      <Menu.Target>
        <UnstyledButton className={classes.user} aria-label={`Account ${session?.name ?? ""}`}>
          <IconUserCircle size={18} stroke={1.6} aria-hidden />
          <span className={classes.userName}>{session?.name}</span>
        </UnstyledButton>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>
          Logged in as {session?.name ?? "…"}
          {server ? (
            <>
              <br />
              Server {server.version}
            </>
          ) : null}
        </Menu.Label>
        <Menu.Item component={Link} to="/admin-keys" leftSection={<IconKey size={16} aria-hidden />}>
          Admin keys
        </Menu.Item>
        <Menu.Item component={Link} to="/servers" leftSection={<IconServer size={16} aria-hidden />}>
          Servers
        </Menu.Item>
        <Menu.Item leftSection={<IconLogout size={16} aria-hidden />} disabled={logOut.isPending} onClick={() => logOut.mutate()}>
          Log out
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
