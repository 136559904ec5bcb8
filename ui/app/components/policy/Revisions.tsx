/** The revisions of a policy, and what differs between two of them. */
import { Select } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { trailQuery } from "~/api/overview";
import type { Policy } from "~/api/types";
import { type Column, DataTable } from "~/components/base/DataTable";
import { Empty, LoadError, Loading } from "~/components/base/Page";
import { TextLink } from "~/components/base/TextLink";
import { When } from "~/components/base/Time";
import { DiffView } from "~/components/fleet/DiffView";
import classes from "~/pages/Admin.module.css";
import { type Revision, revisionsOf, revisionText, settingsText } from "~/util/policy/policy";
import type { PolicySearch } from "~/util/settings/adminSearch";

/** The newest revisions; the audit page has older ones. */
const SHOWN = 100;

export function Revisions({ policy: p, search }: { policy: Policy; search: PolicySearch }) {
  const trail = useQuery(trailQuery({ subject: p.id }, 1, SHOWN));
  const revisions = useMemo(() => revisionsOf(trail.data?.items ?? []), [trail.data]);
  const columns = useMemo(
    (): Column<Revision>[] => [
      {
        id: "revision",
        header: "Revision",
        nowrap: true,
        cell: (r) => (
          <TextLink
            to="/policies/$policyId"
            params={{ policyId: p.id }}
            search={{ revision: r.number }}
            inherit
            underline="always"
            replace
            resetScroll={false}
            aria-label={`Show what revision ${r.number} changed`}
          >
            {r.number}
          </TextLink>
        ),
      },
      { id: "what", header: "Changed", cell: (r) => revisionText(r.entry, p.name) },
      { id: "who", header: "By", nowrap: true, cell: (r) => r.entry.actor },
      { id: "when", header: "When", nowrap: true, cell: (r) => <When at={r.entry.at} /> },
      { id: "why", header: "Reason", wide: true, cell: (r) => r.entry.why ?? <span className={classes.muted}>–</span> },
    ],
    [p.id, p.name],
  );

  if (trail.isError) return <LoadError what="The revisions" error={trail.error} onRetry={() => void trail.refetch()} />;
  if (trail.isPending) return <Loading rows={3} />;
  if (revisions.length === 0)
    return <Empty title="No revision is recorded">The audit trail has the settings of a policy after each change, from its next change on.</Empty>;
  const to = revisions.find((r) => r.number === search.revision) ?? revisions[0]!;
  const from = revisions.find((r) => r.number === search.against) ?? revisions[revisions.indexOf(to) + 1];
  return (
    <div className={classes.tight}>
      <DataTable label="Revisions" columns={columns} rows={revisions} rowId={(r) => String(r.number)} selected={new Set([String(to.number)])} />
      <p className={classes.note}>
        <TextLink to="/audit" search={{ subject: p.id }} inherit underline="always">
          Everything that concerns this policy
        </TextLink>{" "}
        is in the audit trail.
      </p>
      {from ? <Comparison policy={p} revisions={revisions} from={from} to={to} /> : null}
    </div>
  );
}

function Comparison({ policy: p, revisions, from, to }: { policy: Policy; revisions: Revision[]; from: Revision; to: Revision }) {
  const navigate = useNavigate();
  const data = revisions.map((r) => ({ value: String(r.number), label: `Revision ${r.number}` }));
  const go = (revision: string | null, against: string | null) =>
    void navigate({
      to: "/policies/$policyId",
      params: { policyId: p.id },
      search: { revision: Number(revision), against: Number(against) },
      replace: true,
      resetScroll: false,
    });
  const [before, after] = [from, to].map((r) => (r.settings ? settingsText(r.settings) : undefined));
  return (
    <div className={classes.frame}>
      <div className={classes.compare}>
        <span>From</span>
        <Select w={140} aria-label="Compare from" allowDeselect={false} data={data} value={String(from.number)} onChange={(v) => go(String(to.number), v)} />
        <span>to</span>
        <Select w={140} aria-label="Compare to" allowDeselect={false} data={data} value={String(to.number)} onChange={(v) => go(v, String(from.number))} />
      </div>
      {before === undefined || after === undefined ? (
        <p className={classes.compareNote}>The settings of one of them were too large for the audit trail.</p>
      ) : before === after ? (
        <p className={classes.compareNote}>No difference in what the audit trail records: the names, timeouts, required versions and components.</p>
      ) : (
        <DiffView before={before} after={after} label={`Difference from revision ${from.number} to ${to.number}`} />
      )}
    </div>
  );
}
