/** The routes. The state of a page is in its address: searches can be shared and survive a reload. */
import type { QueryClient } from "@tanstack/react-query";
import { createRootRouteWithContext, createRoute, createRouter, lazyRouteComponent, Outlet, redirect } from "@tanstack/react-router";
import { ApiError } from "./api/client";
import { sessionQuery } from "./api/queries";
import { Toasts } from "./components/Toasts";
import { ErrorPage, NotFoundPage } from "./pages/ErrorPage";
import { AdminKeysPage } from "./pages/AdminKeysPage";
import { ActivityPage } from "./pages/ActivityPage";
import { AgentPage } from "./pages/AgentPage";
import { AgentsPage } from "./pages/AgentsPage";
import { ComponentsPage } from "./pages/ComponentsPage";
import { EnrollPage } from "./pages/EnrollPage";
import { FleetsPage } from "./pages/FleetsPage";
import { GroupsPage } from "./pages/GroupsPage";
import { IncidentsPage } from "./pages/IncidentsPage";
import { LoginPage } from "./pages/LoginPage";
import { PackagesPage } from "./pages/PackagesPage";
import { PoliciesPage } from "./pages/PoliciesPage";
import { RolloutsPage } from "./pages/RolloutsPage";
import { ServersPage } from "./pages/ServersPage";
import { Shell } from "./pages/Shell";
import { parseFleetSearch, parseFleetsSearch } from "./util/fleetSearch";
import { localPath } from "./util/paths";
import { parseBoardSearch, parseRolloutsSearch } from "./util/rolloutSearch";
import { parseAgentsSearch } from "./util/search";

interface Context {
  client: QueryClient;
}

const root = createRootRouteWithContext<Context>()({ component: Root, notFoundComponent: NotFoundPage });

/** Messages outlive the page that caused them, and may link to another one. */
function Root() {
  return <Toasts><Outlet /></Toasts>;
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

const index = createRoute({
  getParentRoute: () => shell,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/agents" });
  },
});

const agents = createRoute({
  getParentRoute: () => shell, path: "/agents", component: AgentsPage, validateSearch: parseAgentsSearch,
});
const agent = createRoute({ getParentRoute: () => shell, path: "/agents/$agentId", component: AgentPage });
const rollouts = createRoute({
  getParentRoute: () => shell, path: "/rollouts", component: RolloutsPage, validateSearch: parseRolloutsSearch,
});
// Loaded separately: they read and write YAML, which no other page needs.
const newRollout = createRoute({
  getParentRoute: () => shell, path: "/rollouts/new", component: lazyRouteComponent(() => import("./pages/NewRolloutPage"), "NewRolloutPage"),
});
const rollout = createRoute({
  getParentRoute: () => shell, path: "/rollouts/$rolloutId", validateSearch: parseBoardSearch,
  component: lazyRouteComponent(() => import("./pages/RolloutPage"), "RolloutPage"),
});
const groups = createRoute({ getParentRoute: () => shell, path: "/groups", component: GroupsPage });
const newGroup = createRoute({
  getParentRoute: () => shell, path: "/groups/new", component: lazyRouteComponent(() => import("./pages/NewGroupPage"), "NewGroupPage"),
});
const group = createRoute({
  getParentRoute: () => shell, path: "/groups/$groupId", component: lazyRouteComponent(() => import("./pages/GroupPage"), "GroupPage"),
});
const fleets = createRoute({ getParentRoute: () => shell, path: "/fleets", component: FleetsPage, validateSearch: parseFleetsSearch });
// No name of a fleet begins with a dash, so none hides this page, nor is hidden by it.
const newFleet = createRoute({
  getParentRoute: () => shell, path: "/fleets/-new", component: lazyRouteComponent(() => import("./pages/NewFleetPage"), "NewFleetPage"),
});
const fleet = createRoute({
  getParentRoute: () => shell, path: "/fleets/$name", validateSearch: parseFleetSearch,
  component: lazyRouteComponent(() => import("./pages/FleetPage"), "FleetPage"),
});
const components = createRoute({ getParentRoute: () => shell, path: "/components", component: ComponentsPage });
const policies = createRoute({ getParentRoute: () => shell, path: "/policies", component: PoliciesPage });
const incidents = createRoute({ getParentRoute: () => shell, path: "/incidents", component: IncidentsPage });
const activity = createRoute({ getParentRoute: () => shell, path: "/activity", component: ActivityPage });
const packages = createRoute({ getParentRoute: () => shell, path: "/packages", component: PackagesPage });
const enroll = createRoute({ getParentRoute: () => shell, path: "/enroll", component: EnrollPage });
const adminKeys = createRoute({ getParentRoute: () => shell, path: "/admin-keys", component: AdminKeysPage });
const servers = createRoute({ getParentRoute: () => shell, path: "/servers", component: ServersPage });

const tree = root.addChildren([login, shell.addChildren([index, agents, agent, rollouts, newRollout, rollout, groups, newGroup, group, fleets, newFleet, fleet, components, policies, incidents, activity, packages, enroll, adminKeys, servers])]);

export function makeRouter(client: QueryClient) {
  return createRouter({ routeTree: tree, context: { client }, defaultPreload: false, scrollRestoration: true });
}

declare module "@tanstack/react-router" {
  interface Register {
    router: ReturnType<typeof makeRouter>;
  }
}
