/** What the hosts of a policy run. */
import { useMemo } from "react";
import type { Policy, PolicyComponent } from "~/api/types";
import { type Column, DataTable } from "~/components/base/DataTable";
import { Facts } from "~/components/base/Page";
import { TextLink } from "~/components/base/TextLink";
import { healthText, runsQuery } from "~/util/agent/component";
import { quoted } from "~/util/kql";

/** What the hosts of the policy run of a component that must not run mixed versions. */
function inForceText(c: PolicyComponent): string {
  if (!c.lockstep) return "Mixed versions are allowed";
  if (!c.in_force) return "In lockstep, no version in force yet";
  return c.in_force.changing ? "In lockstep, a rollout is changing it" : `In lockstep, ${c.in_force.version} in force`;
}

export function PolicyComponents({ policy: p }: { policy: Policy }) {
  const columns = useMemo(
    (): Column<PolicyComponent>[] => [
      { id: "name", header: "Component", cell: (c) => <strong>{c.name}</strong> },
      { id: "runtime", header: "Runs as", cell: (c) => c.runtime, nowrap: true },
      { id: "version", header: "First version", cell: (c) => (c.version ? <span className="mono">{c.version}</span> : "none: an order installs it") },
      { id: "lockstep", header: "Versions", cell: inForceText, wide: true },
      { id: "health", header: "Health after an upgrade", cell: healthText, wide: true },
      {
        id: "hosts",
        header: "Hosts",
        nowrap: true,
        cell: (c) => (
          <TextLink
            to="/agents"
            search={{ kuery: `policy_id: ${quoted(p.id)} and ${runsQuery(c.name)}` }}
            inherit
            underline="always"
            aria-label={`Hosts that run ${c.name}`}
          >
            Show hosts
          </TextLink>
        ),
      },
    ],
    [p.id],
  );
  return (
    <DataTable
      label={`Components of ${p.name}`}
      columns={columns}
      rows={p.components ?? []}
      rowId={(c) => c.name}
      expanded={(c) => <Details component={c} />}
    />
  );
}

function Details({ component: c }: { component: PolicyComponent }) {
  const variables = Object.entries(c.variables ?? {});
  return (
    <Facts
      columns={2}
      rows={[
        [
          "Image",
          c.artifact?.image ? (
            <span key="image" className="mono">
              {c.artifact.image}
            </span>
          ) : (
            "as in the package"
          ),
        ],
        ["Configuration", c.server_config ? "rendered by the server, where the package allows it" : "from the package"],
        [
          "Checks",
          c.health?.checks?.length
            ? c.health.checks.map((k) => (
                <div key={k.name}>
                  {k.name}: <span className="mono">{k.http ?? k.tcp}</span>
                </div>
              ))
            : "those of the package",
        ],
        [
          "Variables",
          variables.length > 0
            ? variables.map(([k, v]) => (
                <div key={k} className="mono">
                  {k} = {v}
                </div>
              ))
            : "none",
        ],
      ]}
    />
  );
}
