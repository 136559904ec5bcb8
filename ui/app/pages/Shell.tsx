import { ActionIcon, Menu, Tooltip, UnstyledButton, useMantineColorScheme } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { IconDeviceDesktop, IconKey, IconLogout, IconMoon, IconServer, IconSun, IconUserCircle, IconCheck } from "@tabler/icons-react";
import { Link, Outlet, useLocation, useNavigate } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import { call } from "~/api/client";
import { serverQuery, sessionQuery } from "~/api/queries";
import { Logo } from "~/components/Logo";
import { NowProvider } from "~/components/Now";
import { EventsProvider, useHistory, useStreamState, type StreamState } from "~/hooks/useEvents";
import { useOpenIncidents } from "~/hooks/useOpenIncidents";
import classes from "./Shell.module.css";

const pages = [
  { to: "/agents", label: "Agents" },
  { to: "/components", label: "Components" },
  { to: "/fleets", label: "Fleets" },
  { to: "/rollouts", label: "Rollouts" },
  { to: "/groups", label: "Groups" },
  { to: "/incidents", label: "Incidents" },
  { to: "/activity", label: "Activity" },
  { to: "/policies", label: "Policies" },
  { to: "/packages", label: "Packages" },
  { to: "/enroll", label: "Enrollment" },
] as const;

export function Shell() {
  useFocusOnNewPage();
  return (
    <EventsProvider>
      <NowProvider>
        <a className={classes.skip} href="#main">Skip to the content</a>
        <header className={classes.header}>
          <Link to="/agents" className={classes.brand} aria-label="Muster, agents"><Logo /> <span>Muster</span></Link>
          <nav className={classes.nav} aria-label="Pages">
            {pages.map((page) => (
              <Link key={page.to} to={page.to} className={classes.tab} activeProps={{ "data-active": true, "aria-current": "page" }}>
                {page.label}
                {page.to === "/incidents" ? <OpenIncidents /> : null}
              </Link>
            ))}
          </nav>
          <div className={classes.tools}>
            <Live />
            <SchemeToggle />
            <UserMenu />
          </div>
        </header>
        <main id="main" className={classes.main} tabIndex={-1}><Outlet /></main>
      </NowProvider>
    </EventsProvider>
  );
}

/** The number of open incidents. It is part of the tab's name, so that screen readers read it. */
function OpenIncidents() {
  const open = useOpenIncidents();
  if (open === 0) return null;
  return <span className={classes.count}>{open}<span className="sr-only"> open</span></span>;
}

/** A new page starts at its top for the keyboard and the screen reader too. On a narrow screen its tab scrolls into view. */
function useFocusOnNewPage(): void {
  const path = useLocation({ select: (l) => l.pathname });
  const shown = useRef(path);
  useEffect(() => {
    document.querySelector("nav [aria-current=page]")?.scrollIntoView({ block: "nearest", inline: "center" });
    if (shown.current === path) return;
    shown.current = path;
    document.getElementById("main")?.focus({ preventScroll: true });
  }, [path]);
}

const liveWords: Record<StreamState, { label: string; hint: string }> = {
  connecting: { label: "Connecting…", hint: "Connecting to the event stream. Until then the page is refreshed every 30 seconds." },
  live: { label: "Live", hint: "Changes are shown as they happen." },
  reconnecting: { label: "Reconnecting…", hint: "The event stream was interrupted. Until it is back the page is refreshed every 30 seconds." },
};

function Live() {
  const state = useStreamState();
  const { label, hint } = liveWords[state];
  return (
    <Tooltip label={hint}>
      <span className={classes.live} data-state={state} role="status" tabIndex={0}>
        <span className={classes.dot} aria-hidden />
        {label}
      </span>
    </Tooltip>
  );
}

const schemes = [
  { value: "light", label: "Light", Icon: IconSun },
  { value: "dark", label: "Dark", Icon: IconMoon },
  { value: "auto", label: "System default", Icon: IconDeviceDesktop },
] as const;

function SchemeToggle() {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const Current = (schemes.find((s) => s.value === colorScheme) ?? schemes[2]).Icon;
  return (
    <Menu position="bottom-end" width={190}>
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" size="lg" aria-label={`Colours: ${colorScheme}`}><Current size={18} aria-hidden /></ActionIcon>
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
  const history = useHistory();
  const navigate = useNavigate();
  const { data: session } = useQuery(sessionQuery);
  const { data: server } = useQuery(serverQuery);
  const logOut = useMutation({
    mutationFn: () => call("delete", "/api/v1/session"),
    onSuccess: async () => {
      history.clear();
      await navigate({ to: "/login" });
      client.clear();
    },
  });
  return (
    <Menu position="bottom-end" width={220}>
      <Menu.Target>
        <UnstyledButton className={classes.user} aria-label={`Account ${session?.name ?? ""}`}>
          <IconUserCircle size={20} aria-hidden />
          <span className={classes.userName}>{session?.name}</span>
        </UnstyledButton>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>Logged in as {session?.name ?? "…"}{server ? <><br />Server {server.version}</> : null}</Menu.Label>
        <Menu.Item component={Link} to="/admin-keys" leftSection={<IconKey size={16} aria-hidden />}>Admin keys</Menu.Item>
        <Menu.Item component={Link} to="/servers" leftSection={<IconServer size={16} aria-hidden />}>Servers</Menu.Item>
        <Menu.Item leftSection={<IconLogout size={16} aria-hidden />} disabled={logOut.isPending} onClick={() => logOut.mutate()}>Log out</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
