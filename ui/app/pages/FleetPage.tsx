import { IconHandStop } from "@tabler/icons-react";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useState } from "react";
import { ApiError } from "~/api/client";
import { saveFleet } from "~/api/fleets";
import { fleetQuery, keys } from "~/api/queries";
import type { Fleet } from "~/api/types";
import { Callout } from "~/components/base/Callout";
import { CopyIcon } from "~/components/base/CopyBlock";
import { Empty, Facts, Line, LoadError, Loading, PageHead, Section } from "~/components/base/Page";
import { Ago } from "~/components/base/Time";
import { toast } from "~/components/base/Toasts";
import classes from "~/components/fleet/Fleet.module.css";
import { FleetBadges, ReadyBadge } from "~/components/fleet/FleetBadges";
import { FleetControls } from "~/components/fleet/FleetControls";
import { FleetEditor } from "~/components/fleet/FleetEditor";
import { Conditions, LastRollout, Versions } from "~/components/fleet/FleetStatus";
import { FleetTrail } from "~/components/fleet/FleetTrail";
import { WhyNotRolling } from "~/components/fleet/WhyNotRolling";
import { managedBy } from "~/util/fleet/fleet";
import { fleetText } from "~/util/fleet/fleetYaml";
import { shortHash } from "~/util/rollout/preview";
import { plural } from "~/util/words";

const route = getRouteApi("/shell/fleets/$name");
const CRUMBS = [{ label: "Fleets", to: "/fleets" }];

export function FleetPage() {
  const { name } = route.useParams();
  const { edit } = route.useSearch();
  const navigate = route.useNavigate();
  const query = useQuery(fleetQuery(name));
  const f = query.data;
  if (!f) {
    return (
      <>
        <PageHead title={name} crumbs={CRUMBS} />
        {query.error instanceof ApiError && query.error.statusCode === 404 ? (
          <>
            <Empty title="There is no such fleet">
              It may have been deleted. Its name is <span className="mono">{name}</span>.
            </Empty>
            <FleetTrail name={name} />
          </>
        ) : query.isError ? (
          <LoadError what="The fleet" error={query.error} onRetry={() => void query.refetch()} />
        ) : (
          <Loading />
        )}
      </>
    );
  }
  return (
    <>
      <PageHead
        title={name}
        crumbs={CRUMBS}
        docs="fleets"
        badge={
          <span className={classes.badges}>
            <ReadyBadge fleet={f} strong />
            <FleetBadges fleet={f} />
          </span>
        }
        sub={
          <Line>
            {[
              plural(f.status?.agents ?? 0, "host"),
              `generation ${(f.metadata.generation ?? 0).toLocaleString()}`,
              f.metadata.creationTimestamp ? (
                <>
                  created <Ago at={f.metadata.creationTimestamp} />
                </>
              ) : null,
            ]}
          </Line>
        }
      >
        {edit ? null : <FleetControls fleet={f} onEdit={() => void navigate({ search: { edit: true } })} />}
      </PageHead>
      {query.isError ? <LoadError what="The newest state of the fleet" error={query.error} onRetry={() => void query.refetch()} /> : null}
      {edit ? (
        <Edit key={f.metadata.uid} fleet={f} onClose={() => void navigate({ search: {} })} />
      ) : (
        <div className={classes.stack}>
          <Suspended fleet={f} />
          <WhyNotRolling fleet={f} />
          <div className={classes.columns}>
            <Versions fleet={f} />
            <LastRollout fleet={f} />
          </div>
          <Conditions fleet={f} />
          <div className={classes.columns}>
            <Section title="Spec" plain aside={<CopyIcon text={fleetText(f)} label="Copy the fleet as YAML" />}>
              <pre className={classes.yaml} tabIndex={0} role="group" aria-label="Fleet in YAML">
                {fleetText(f)}
              </pre>
            </Section>
            <div className={classes.stack}>
              <FleetTrail name={name} />
              <About fleet={f} />
            </div>
          </div>
        </div>
      )}
    </>
  );
}

function Edit({ fleet, onClose }: { fleet: Fleet; onClose: () => void }) {
  const client = useQueryClient();
  // What is edited stays as it was read, so that a change of somebody else is noticed.
  const [base, setBase] = useState(fleet);
  const tool = managedBy(base);
  return (
    <div className={classes.stack}>
      {tool ? <Callout kind="warning">{tool} manages this fleet and will undo what is changed here. Change it in its repository instead.</Callout> : null}
      <FleetEditor
        base={base}
        text={fleetText(base)}
        save={(f, why) => saveFleet(f, base, why)}
        onSaved={(saved) => {
          toast({ kind: "done", title: `${saved.metadata.name} is saved` });
          client.setQueryData(keys.fleet(saved.metadata.name), saved);
          void client.invalidateQueries({ queryKey: keys.fleets });
          onClose();
        }}
        onRebase={setBase}
        onCancel={onClose}
      >
        <Empty title="Nothing is saved yet">
          Change the text and review it: the review shows the difference, whether a rollout would start, and on how many hosts.
        </Empty>
      </FleetEditor>
    </div>
  );
}

function Suspended({ fleet: f }: { fleet: Fleet }) {
  const s = f.status?.suspended;
  if (!s) return null;
  return (
    <Callout kind="warning" icon={<IconHandStop size={18} aria-hidden />} title="Suspended: its hosts were taken over">
      <div>
        By {s.by} <Ago at={s.at} />
        {s.why ? `: “${s.why}”` : "."}
      </div>
    </Callout>
  );
}

function About({ fleet: f }: { fleet: Fleet }) {
  const hash = (h: string | undefined) =>
    h ? (
      <span>
        <span className="mono" title={h}>
          {shortHash(h)}…
        </span>{" "}
        <CopyIcon text={h} label="Copy the hash" />
      </span>
    ) : (
      "none yet"
    );
  const { uid, resourceVersion, labels = {} } = f.metadata;
  return (
    <Section title="Object" plain>
      <Facts
        rows={[
          ["Requested hash", hash(f.status?.requestedRolloutHash)],
          ["Completed hash", hash(f.status?.lastCompletedRolloutHash)],
          ["Observed generation", `${f.status?.observedGeneration ?? 0} of ${f.metadata.generation ?? 0}`],
          [
            "Labels",
            Object.keys(labels).length > 0 ? (
              <span key="labels" className="mono">
                {Object.entries(labels)
                  .map(([k, v]) => `${k}=${v}`)
                  .join(", ")}
              </span>
            ) : (
              "none"
            ),
          ],
          [
            "Resource version",
            <span key="v" className="mono">
              {resourceVersion}
            </span>,
          ],
          [
            "UID",
            <span key="u" className="mono">
              {uid}
            </span>,
          ],
        ]}
      />
    </Section>
  );
}
