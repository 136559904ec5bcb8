/** The pages of the rail, in its order. */
import {
  type Icon,
  IconActivityHeartbeat,
  IconBell,
  IconChartAreaLine,
  IconFlag3,
  IconHistory,
  IconPackage,
  IconPlugConnected,
  IconRocket,
  IconServer2,
  IconSettings,
  IconShieldCheck,
  IconSitemap,
  IconWebhook,
} from "@tabler/icons-react";

export interface NavPage {
  to: string;
  label: string;
  icon: Icon;
  /** Other addresses that belong to this entry. */
  also?: readonly string[];
  /** Pressed after g. */
  key: string;
}

export const WORK: readonly NavPage[] = [
  { to: "/", label: "Overview", icon: IconChartAreaLine, key: "h" },
  { to: "/agents", label: "Agents", icon: IconServer2, also: ["/components"], key: "a" },
  { to: "/rollouts", label: "Rollouts", icon: IconRocket, also: ["/groups"], key: "r" },
  { to: "/fleets", label: "Fleets", icon: IconSitemap, key: "f" },
  { to: "/activity", label: "Activity", icon: IconActivityHeartbeat, key: "v" },
  { to: "/incidents", label: "Incidents", icon: IconBell, key: "i" },
];

export const SETUP: readonly NavPage[] = [
  { to: "/policies", label: "Policies", icon: IconFlag3, key: "p" },
  { to: "/packages", label: "Packages & trust", icon: IconPackage, also: ["/trust"], key: "k" },
  { to: "/enroll", label: "Enrolment", icon: IconPlugConnected, key: "e" },
  { to: "/guard-rails", label: "Guard rails", icon: IconShieldCheck, key: "g" },
  { to: "/webhooks", label: "Webhooks", icon: IconWebhook, key: "w" },
  { to: "/audit", label: "Audit", icon: IconHistory, key: "u" },
  { to: "/settings", label: "Settings", icon: IconSettings, also: ["/servers", "/admin-keys"], key: "s" },
];

export const isHere = (page: NavPage, path: string): boolean =>
  path === page.to || [page.to, ...(page.also ?? [])].some((to) => to !== "/" && path.startsWith(`${to}/`)) || (page.also?.includes(path) ?? false);
