import type { Fleet, FleetCondition } from "~/api/types";
import { CONDITION_TYPES, conditionOf, partsOf } from "~/util/fleet/fleet";
import { percent } from "~/util/rollout/rolloutCounts";
import { plural, sentence } from "~/util/words";
import { RolloutBadge } from "../base/Badge";
import { type Column, DataTable } from "../base/DataTable";
import { Empty, Section } from "../base/Page";
import { TextLink } from "../base/TextLink";
import { When } from "../base/Time";
import classes from "./Fleet.module.css";
import { StatusOf } from "./FleetBadges";

const columns: Column<FleetCondition>[] = [
  { id: "type", header: "Condition", cell: (c) => <b>{c.type}</b> },
  { id: "holds", header: "Holds", nowrap: true, cell: (c) => <StatusOf condition={c} /> },
  { id: "reason", header: "Reason", wide: true, cell: (c) => <span className="mono">{c.reason}</span> },
  { id: "message", header: "Message", width: "46%", cell: (c) => sentence(c.message) },
  { id: "since", header: "Since", nowrap: true, wide: true, cell: (c) => <When at={c.lastTransitionTime} /> },
];

export function Conditions({ fleet: f }: { fleet: Fleet }) {
  const all = CONDITION_TYPES.flatMap((t) => conditionOf(f, t) ?? []);
  return (
    <Section title="Conditions" plain>
      {all.length === 0 ? (
        <Empty title="None yet">The server sets them once it has looked at the fleet.</Empty>
      ) : (
        <DataTable label="Conditions" columns={columns} rows={all} rowId={(c) => c.type} />
      )}
    </Section>
  );
}

/** How many hosts run which version of each part. */
export function Versions({ fleet: f }: { fleet: Fleet }) {
  return (
    <Section title="Versions" plain>
      {partsOf(f).map((p) => (
        <div key={p.part} className={classes.part}>
          <div className={classes.partHead}>
            <span>
              <b>{p.part}</b> to <span className="mono">{p.wants}</span>
            </span>
            {p.there !== undefined && p.agents > 0 ? (
              <span>
                {p.there.toLocaleString()} of {p.agents.toLocaleString()} run it, {percent(Math.floor((p.there * 1000) / p.agents) / 10)}
              </span>
            ) : null}
          </div>
          {p.there !== undefined && p.agents > 0 ? (
            <div className={classes.bar} aria-hidden>
              <span style={{ width: `${(100 * p.there) / p.agents}%` }} />
            </div>
          ) : null}
          <ul className={classes.versions} aria-label={`Versions of ${p.part}`}>
            {p.versions.map((v) => (
              <li key={v.version}>
                <b className="mono">{v.version || "not installed"}</b> on {plural(v.agents, "host")}
              </li>
            ))}
            {p.versions.length === 0 ? <li>not counted yet</li> : null}
          </ul>
        </div>
      ))}
    </Section>
  );
}

/** The rollout that brings the fleet to its spec. */
export function LastRollout({ fleet: f }: { fleet: Fleet }) {
  const r = f.status?.rollout;
  if (!r)
    return (
      <Section title="Rollout" plain>
        <span className={classes.sub}>None has been started for it yet.</span>
      </Section>
    );
  return (
    <Section title="Rollout" plain>
      <div className={classes.badges}>
        <RolloutBadge rollout={{ state: r.state }} />
        <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: r.id }} size="sm" underline="always">
          {r.component || "Agents"}
          {r.version ? (
            <>
              {" "}
              to <span className="mono">{r.version}</span>
            </>
          ) : null}
        </TextLink>
      </div>
      {r.waiting ? <div className={classes.waits}>{sentence(r.waiting)}</div> : null}
      {r.number ? (
        <div className={classes.sub}>
          Number {r.number} after the first: it brings hosts that joined later, came back or ran something else to the same hash.
        </div>
      ) : null}
    </Section>
  );
}
