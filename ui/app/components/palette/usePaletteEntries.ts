/** The entries of the command palette: pages, actions, and what the server has. */
import { useMantineColorScheme } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { type Icon, IconKeyboard, IconMoon, IconPackage, IconPlus, IconRocket, IconSearch, IconServer2, IconSun, IconSunMoon } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { type NavigateOptions, useNavigate } from "@tanstack/react-router";
import { agentsPageQuery } from "~/api/agents";
import { rolloutsQuery, versionsQuery } from "~/api/queries";
import { SETUP, WORK } from "~/pages/nav";
import { hostOf } from "~/util/agents/facts";
import { type Entry, hostQuery, type Section, sectionsFor } from "~/util/palette/palette";
import { rolloutLook } from "~/util/state";
import { compareVersions } from "~/util/version";

export interface PaletteEntry extends Entry {
  icon: Icon;
  /** A hostname, a version. */
  mono?: boolean;
  keys?: readonly string[];
  run: () => void;
}

/** How long typing must pause before the server is asked. */
const PAUSE_MS = 150;
const HOSTS_SHOWN = 8;
const SORT = "local_metadata.host.hostname";

export interface Found {
  sections: { title: string; entries: PaletteEntry[] }[];
  /** The server has not answered for this text yet. */
  busy: boolean;
}

export function usePaletteEntries(text: string, onHelp: () => void): Found {
  const navigate = useNavigate();
  const { setColorScheme } = useMantineColorScheme();
  const [asked] = useDebouncedValue(text.trim(), PAUSE_MS);
  const query = hostQuery(text);
  const askedQuery = hostQuery(asked);
  const hosts = useQuery({
    ...agentsPageQuery({ kuery: askedQuery, sortField: SORT, page: 1, perPage: HOSTS_SHOWN }),
    enabled: askedQuery !== undefined,
    refetchInterval: false,
  });
  const rollouts = useQuery(rolloutsQuery);
  const versions = useQuery(versionsQuery);
  const go = (to: NavigateOptions) => () => void navigate(to);
  const any = text.trim() !== "";

  const pages = [...WORK, ...SETUP].map(
    (p): PaletteEntry => ({
      id: `page ${p.to}`,
      label: p.label,
      also: p.to === "/agents" ? "hosts" : p.to,
      icon: p.icon,
      keys: ["g", p.key],
      run: () => void navigate({ to: p.to }),
    }),
  );
  const actions: PaletteEntry[] = [
    { id: "add", label: "Add a host", also: "enrol agent new", icon: IconPlus, run: go({ to: "/enroll" }) },
    { id: "rollout", label: "Create rollout", also: "new upgrade", icon: IconRocket, run: go({ to: "/rollouts/new" }) },
    { id: "light", label: "Use the light theme", also: "colours", icon: IconSun, run: () => setColorScheme("light") },
    { id: "dark", label: "Use the dark theme", also: "colours", icon: IconMoon, run: () => setColorScheme("dark") },
    { id: "auto", label: "Use the theme of the system", also: "colours", icon: IconSunMoon, run: () => setColorScheme("auto") },
    { id: "help", label: "Show keyboard shortcuts", also: "keys help", icon: IconKeyboard, keys: ["?"], run: onHelp },
  ];
  const found = (query === undefined ? [] : (hosts.data?.items ?? [])).map(
    (a): PaletteEntry => ({
      id: `host ${a.id}`,
      label: hostOf(a),
      hint: a.agent?.version,
      mono: true,
      icon: IconServer2,
      run: go({ to: "/agents/$agentId", params: { agentId: a.id } }),
    }),
  );
  const plans = (rollouts.data?.items ?? []).map(
    (r): PaletteEntry => ({
      id: `rollout ${r.id}`,
      label: r.plan.name,
      hint: rolloutLook(r).word,
      also: r.plan.version,
      icon: IconRocket,
      run: go({ to: "/rollouts/$rolloutId", params: { rolloutId: r.id } }),
    }),
  );
  const numbers = [...(versions.data ?? [])]
    .sort((a, b) => compareVersions(b, a))
    .map(
      (v): PaletteEntry => ({
        id: `version ${v}`,
        label: v,
        hint: "Hosts that run it",
        mono: true,
        icon: IconPackage,
        run: go({ to: "/agents", search: { kuery: `version: "${v}"` } }),
      }),
    );
  const search: PaletteEntry[] =
    query === undefined
      ? []
      : [{ id: "search", label: `Search all hosts for “${text.trim()}”`, icon: IconSearch, run: go({ to: "/agents", search: { kuery: query } }) }];

  const sections: Section<PaletteEntry>[] = [
    { title: "Pages", entries: pages, most: any ? 4 : 20 },
    { title: "Actions", entries: actions, most: 6 },
    ...(any
      ? [
          { title: "Rollouts", entries: plans, most: 5 },
          { title: "Versions", entries: numbers, most: 4 },
          { title: "Hosts", entries: found, found: true, most: HOSTS_SHOWN },
          { title: "Search", entries: search, found: true, most: 1 },
        ]
      : []),
  ];
  return { sections: sectionsFor(sections, text), busy: query !== undefined && (query !== askedQuery || hosts.isFetching) };
}
