/** Which versions the hosts of a policy run. */
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { policyVersionsQuery } from "~/api/policies";
import type { AutoUpgradeStatus, Policy } from "~/api/types";
import { type Column, DataTable } from "~/components/base/DataTable";
import { LoadError, Loading, Section } from "~/components/base/Page";
import { TextLink } from "~/components/base/TextLink";
import classes from "~/pages/Admin.module.css";

type Row = AutoUpgradeStatus["currentVersions"][number];

export function PolicyVersions({ policy: p }: { policy: Policy }) {
  const versions = useQuery(policyVersionsQuery(p.id));
  const columns = useMemo(
    (): Column<Row>[] => [
      { id: "version", header: "Version", cell: (r) => <span className="mono">{r.version}</span> },
      {
        id: "wanted",
        header: "Required",
        align: "end",
        nowrap: true,
        cell: (r) => {
          const want = p.required_versions?.find((v) => v.version === r.version);
          return want ? `${want.percentage} %` : "–";
        },
      },
      {
        id: "hosts",
        header: "Run it",
        align: "end",
        nowrap: true,
        cell: (r) =>
          r.agents > 0 ? (
            <TextLink to="/agents" search={{ policy: [p.id], version: [r.version] }} inherit underline="always">
              {r.agents.toLocaleString()}
            </TextLink>
          ) : (
            "0"
          ),
      },
      { id: "upgrading", header: "Upgrading", align: "end", nowrap: true, cell: (r) => r.inProgressUpgradeAgents.toLocaleString() },
      {
        id: "failed",
        header: "Failed",
        align: "end",
        nowrap: true,
        cell: (r) => (r.failedUpgradeAgents > 0 ? <span className={classes.bad}>{r.failedUpgradeAgents.toLocaleString()}</span> : "0"),
      },
    ],
    [p.id, p.required_versions],
  );
  return (
    <Section title="Versions of its hosts" flush>
      {versions.isError ? <LoadError what="The versions" error={versions.error} onRetry={() => void versions.refetch()} /> : null}
      {versions.isPending ? <Loading rows={3} /> : null}
      {versions.data?.currentVersions.length === 0 ? <p className={classes.compareNote}>It has no hosts yet.</p> : null}
      {versions.data && versions.data.currentVersions.length > 0 ? (
        <DataTable label="Versions of its hosts" columns={columns} rows={versions.data.currentVersions} rowId={(r) => r.version} />
      ) : null}
    </Section>
  );
}
