import { GRID_GROUPS, type GridGroup, groupLook } from "~/util/grid/gridClass";
import { toggled } from "~/util/grid/gridText";
import classes from "./GridLegend.module.css";
import { GridSwatch } from "./GridSwatch";

interface Props {
  counts: Record<GridGroup, number>;
  shown: readonly GridGroup[];
  /** Without it the legend is only read. */
  onShow?: (shown: GridGroup[]) => void;
}

/** What the cells mean, with counts. Each entry shows only its group; more of them show their union. */
export function GridLegend({ counts, shown, onShow }: Props) {
  const digits = Math.max(...GRID_GROUPS.map((g) => counts[g])).toLocaleString().length;
  return (
    <div className={classes.legend} role="group" aria-label="Show hosts that are">
      {GRID_GROUPS.map((group) => (
        <button
          key={group}
          type="button"
          className={classes.entry}
          data-empty={counts[group] === 0 || undefined}
          aria-pressed={onShow ? shown.includes(group) : undefined}
          disabled={!onShow}
          onClick={() => onShow?.(toggled(shown, group))}
        >
          <GridSwatch group={group} />
          <span>{groupLook[group].label}</span>
          {/* As wide as the largest count: a count that changes moves nothing beside it. */}
          <span className={classes.count} style={{ minWidth: `${digits}ch` }}>
            {counts[group].toLocaleString()}
          </span>
        </button>
      ))}
      {shown.length > 0 && onShow ? (
        <button type="button" className={classes.all} onClick={() => onShow([])}>
          Show all hosts
        </button>
      ) : null}
    </div>
  );
}
