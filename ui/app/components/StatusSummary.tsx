import { Link } from "@tanstack/react-router";
import { useOpenIncidents } from "~/hooks/useOpenIncidents";
import { GROUPS, groupLabel, HIDDEN_GROUPS, type StatusGroup } from "~/util/status";
import { plural } from "~/util/words";
import { StatusIcon } from "./StatusBadge";
import classes from "./StatusSummary.module.css";

/** Shown even at zero: operators look for "0 unhealthy". */
const ALWAYS: readonly StatusGroup[] = ["healthy", "unhealthy", "updating", "offline"];

interface Props {
  counts: Record<StatusGroup, number>;
  chosen: readonly StatusGroup[];
  onChange: (chosen: StatusGroup[]) => void;
}

export function StatusSummary({ counts, chosen, onChange }: Props) {
  const total = GROUPS.reduce((sum, g) => sum + counts[g], 0);
  const shown = GROUPS.filter((g) => ALWAYS.includes(g) || counts[g] > 0 || chosen.includes(g));
  const toggle = (group: StatusGroup) =>
    onChange(chosen.includes(group) ? chosen.filter((g) => g !== group) : [...chosen, group]);

  return (
    <div className={classes.summary}>
      <div className={classes.chips} role="group" aria-label="Show agents by status">
        <button type="button" className={classes.chip} aria-pressed={chosen.length === 0} onClick={() => onChange([])}>
          <span className={classes.count}>{total.toLocaleString()}</span>
          <span className={classes.label}>All</span>
        </button>
        {shown.map((group) => (
          <button
            key={group}
            type="button"
            className={classes.chip}
            data-group={group}
            data-zero={counts[group] === 0 || undefined}
            aria-pressed={chosen.includes(group)}
            onClick={() => toggle(group)}
          >
            <span className={classes.count}>{counts[group].toLocaleString()}</span>
            <span className={classes.label}><StatusIcon group={group} /> {groupLabel[group]}</span>
          </button>
        ))}
        <IncidentTile />
      </div>
      <div className={classes.bar} aria-hidden>
        {GROUPS.filter((g) => counts[g] > 0).map((group) => (
          <button
            key={group}
            type="button"
            tabIndex={-1}
            className={classes.segment}
            data-group={group}
            data-faded={(chosen.length > 0 && !chosen.includes(group)) || undefined}
            style={{ flexGrow: counts[group] }}
            title={`${plural(counts[group], "agent")} ${groupLabel[group].toLowerCase()}${HIDDEN_GROUPS.includes(group) ? " (not counted as active)" : ""}`}
            onClick={() => toggle(group)}
          />
        ))}
      </div>
    </div>
  );
}

/** A link to the open incidents. It is there only while there are some. */
function IncidentTile() {
  const open = useOpenIncidents();
  if (open === 0) return null;
  return (
    <Link to="/incidents" className={classes.chip} data-group="unhealthy">
      <span className={classes.count}>{open.toLocaleString()}</span>
      <span className={classes.label}>{open === 1 ? "Open incident" : "Open incidents"}</span>
    </Link>
  );
}
