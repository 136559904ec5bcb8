/** The routes. The state of a page is in its address: searches can be shared and survive a reload. */
import type { QueryClient } from "@tanstack/react-query";
import { createRootRouteWithContext, createRoute, createRouter, lazyRouteComponent, Outlet, redirect } from "@tanstack/react-router";
import { ApiError } from "./api/client";
import { sessionQuery } from "./api/queries";
import { Toasts } from "./components/base/Toasts";
import { AgentsPage } from "./pages/AgentsPage";
import { ErrorPage, NotFoundPage } from "./pages/ErrorPage";
import { LoginPage } from "./pages/LoginPage";
import { OverviewPage } from "./pages/OverviewPage";
import { Shell } from "./pages/Shell";
import { parseActivitySearch } from "./util/activity/activitySearch";
import { parseAgentSearch } from "./util/agent/agentSearch";
import { parseAgentsSearch } from "./util/agents/search";
import { parseAuditSearch } from "./util/audit/auditSearch";
import { parseFleetSearch, parseFleetsSearch } from "./util/fleet/fleetSearch";
import { parseIncidentsSearch } from "./util/incident/incident";
import { parseOverviewSearch } from "./util/overview/overview";
import { localPath } from "./util/paths";
import { parseNewRolloutSearch, parsePageSearch } from "./util/plan/planSearch";
import { parseBoardSearch, parseRolloutsSearch } from "./util/rollout/rolloutSearch";
import { parseEnrollSearch, parseListSearch, parsePolicySearch, parseSettingsSearch } from "./util/settings/adminSearch";

interface Context {
  client: QueryClient;
}

const root = createRootRouteWithContext<Context>()({ component: Root, notFoundComponent: NotFoundPage });

/** Messages outlive the page that caused them, and may link to another one. */
function Root() {
  return (
    <>
      <Outlet />
      <Toasts />
    </>
  );
}

const login = createRoute({
  getParentRoute: () => root,
  path: "/login",
  validateSearch: (s: Record<string, unknown>): { from?: string } => ({ from: localPath(s.from) }),
  component: LoginPage,
});

const shell = createRoute({
  getParentRoute: () => root,
  id: "shell",
  component: Shell,
  errorComponent: ErrorPage,
  beforeLoad: async ({ context, location }) => {
    try {
      await context.client.ensureQueryData(sessionQuery);
    } catch (error) {
      if (error instanceof ApiError && error.statusCode === 401) {
        throw redirect({ to: "/login", search: { from: localPath(location.href) } });
      }
      throw error;
    }
  },
});

/** Pages are loaded when they are opened; the first ones that people see are part of the first file. */
const index = createRoute({ getParentRoute: () => shell, path: "/", component: OverviewPage, validateSearch: parseOverviewSearch });
const agents = createRoute({
  getParentRoute: () => shell,
  path: "/agents",
  component: AgentsPage,
  validateSearch: parseAgentsSearch,
});
const agent = createRoute({
  getParentRoute: () => shell,
  path: "/agents/$agentId",
  validateSearch: parseAgentSearch,
  component: lazyRouteComponent(() => import("./pages/AgentPage"), "AgentPage"),
});
const components = createRoute({
  getParentRoute: () => shell,
  path: "/components",
  component: lazyRouteComponent(() => import("./pages/ComponentsPage"), "ComponentsPage"),
});
const rollouts = createRoute({
  getParentRoute: () => shell,
  path: "/rollouts",
  validateSearch: parseRolloutsSearch,
  component: lazyRouteComponent(() => import("./pages/RolloutsPage"), "RolloutsPage"),
});
const newRollout = createRoute({
  getParentRoute: () => shell,
  path: "/rollouts/new",
  validateSearch: parseNewRolloutSearch,
  component: lazyRouteComponent(() => import("./pages/NewRolloutPage"), "NewRolloutPage"),
});
const rollout = createRoute({
  getParentRoute: () => shell,
  path: "/rollouts/$rolloutId",
  validateSearch: parseBoardSearch,
  component: lazyRouteComponent(() => import("./pages/RolloutPage"), "RolloutPage"),
});
const groups = createRoute({
  getParentRoute: () => shell,
  path: "/groups",
  validateSearch: parsePageSearch,
  component: lazyRouteComponent(() => import("./pages/GroupsPage"), "GroupsPage"),
});
const newGroup = createRoute({
  getParentRoute: () => shell,
  path: "/groups/new",
  component: lazyRouteComponent(() => import("./pages/NewGroupPage"), "NewGroupPage"),
});
const group = createRoute({
  getParentRoute: () => shell,
  path: "/groups/$groupId",
  component: lazyRouteComponent(() => import("./pages/GroupPage"), "GroupPage"),
});
const fleets = createRoute({
  getParentRoute: () => shell,
  path: "/fleets",
  validateSearch: parseFleetsSearch,
  component: lazyRouteComponent(() => import("./pages/FleetsPage"), "FleetsPage"),
});
// No name of a fleet begins with a dash, so none hides this page, nor is hidden by it.
const newFleet = createRoute({
  getParentRoute: () => shell,
  path: "/fleets/-new",
  component: lazyRouteComponent(() => import("./pages/NewFleetPage"), "NewFleetPage"),
});
const fleet = createRoute({
  getParentRoute: () => shell,
  path: "/fleets/$name",
  validateSearch: parseFleetSearch,
  component: lazyRouteComponent(() => import("./pages/FleetPage"), "FleetPage"),
});
const policies = createRoute({
  getParentRoute: () => shell,
  path: "/policies",
  validateSearch: parseListSearch,
  component: lazyRouteComponent(() => import("./pages/PoliciesPage"), "PoliciesPage"),
});
const policy = createRoute({
  getParentRoute: () => shell,
  path: "/policies/$policyId",
  validateSearch: parsePolicySearch,
  component: lazyRouteComponent(() => import("./pages/PolicyPage"), "PolicyPage"),
});
const incidents = createRoute({
  getParentRoute: () => shell,
  path: "/incidents",
  validateSearch: parseIncidentsSearch,
  component: lazyRouteComponent(() => import("./pages/IncidentsPage"), "IncidentsPage"),
});
const activity = createRoute({
  getParentRoute: () => shell,
  path: "/activity",
  validateSearch: parseActivitySearch,
  component: lazyRouteComponent(() => import("./pages/ActivityPage"), "ActivityPage"),
});
const packages = createRoute({
  getParentRoute: () => shell,
  path: "/packages",
  validateSearch: parseListSearch,
  component: lazyRouteComponent(() => import("./pages/PackagesPage"), "PackagesPage"),
});
const trust = createRoute({
  getParentRoute: () => shell,
  path: "/trust",
  component: lazyRouteComponent(() => import("./pages/TrustPage"), "TrustPage"),
});
const enroll = createRoute({
  getParentRoute: () => shell,
  path: "/enroll",
  validateSearch: parseEnrollSearch,
  component: lazyRouteComponent(() => import("./pages/EnrollPage"), "EnrollPage"),
});
const guardRails = createRoute({
  getParentRoute: () => shell,
  path: "/guard-rails",
  component: lazyRouteComponent(() => import("./pages/GuardRailsPage"), "GuardRailsPage"),
});
const webhooks = createRoute({
  getParentRoute: () => shell,
  path: "/webhooks",
  validateSearch: parseListSearch,
  component: lazyRouteComponent(() => import("./pages/WebhooksPage"), "WebhooksPage"),
});
const audit = createRoute({
  getParentRoute: () => shell,
  path: "/audit",
  validateSearch: parseAuditSearch,
  component: lazyRouteComponent(() => import("./pages/AuditPage"), "AuditPage"),
});
const settings = createRoute({
  getParentRoute: () => shell,
  path: "/settings",
  validateSearch: parseSettingsSearch,
  component: lazyRouteComponent(() => import("./pages/SettingsPage"), "SettingsPage"),
});
const adminKeys = createRoute({
  getParentRoute: () => shell,
  path: "/admin-keys",
  validateSearch: parseListSearch,
  component: lazyRouteComponent(() => import("./pages/AdminKeysPage"), "AdminKeysPage"),
});
const servers = createRoute({
  getParentRoute: () => shell,
  path: "/servers",
  component: lazyRouteComponent(() => import("./pages/ServersPage"), "ServersPage"),
});
const unknown = createRoute({ getParentRoute: () => shell, path: "$", component: NotFoundPage });

const tree = root.addChildren([
  login,
  shell.addChildren([
    index,
    agents,
    agent,
    components,
    rollouts,
    newRollout,
    rollout,
    groups,
    newGroup,
    group,
    fleets,
    newFleet,
    fleet,
    activity,
    incidents,
    policies,
    policy,
    packages,
    trust,
    enroll,
    guardRails,
    webhooks,
    audit,
    settings,
    adminKeys,
    servers,
    unknown,
  ]),
]);

export function makeRouter(client: QueryClient) {
  return createRouter({ routeTree: tree, context: { client }, defaultPreload: "intent", defaultErrorComponent: ErrorPage, scrollRestoration: true });
}

declare module "@tanstack/react-router" {
  interface Register {
    router: ReturnType<typeof makeRouter>;
  }
}
