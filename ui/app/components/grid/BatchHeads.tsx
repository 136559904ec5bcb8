import { type KeyboardEvent, useState } from "react";
import type { GridColumn } from "~/util/grid/gridLayout";
import { type BatchNames, batchName, headKind } from "~/util/grid/gridText";
import classes from "./HostGrid.module.css";

interface Props {
  columns: readonly GridColumn[];
  names?: BatchNames;
  onPick?: (batch: number) => void;
  /** For screen readers: how each batch stands. */
  texts: readonly string[];
}

/** The names of the batches above their columns. They are one stop of the Tab key; arrow keys move between them. */
export function BatchHeads({ columns, names, onPick, texts }: Props) {
  const [stop, setStop] = useState(0);
  const current = Math.min(stop, columns.length - 1);
  const onKeyDown = (event: KeyboardEvent<HTMLElement>) => {
    const to = { ArrowRight: current + 1, ArrowLeft: current - 1, Home: 0, End: columns.length - 1 }[event.key];
    if (to === undefined || to < 0 || to >= columns.length) return;
    event.preventDefault();
    setStop(to);
    event.currentTarget.querySelectorAll("button")[to]?.focus();
  };
  return (
    <div className={classes.heads} role="toolbar" aria-label="Batches" onKeyDown={onKeyDown}>
      {columns.map((column, i) => {
        const kind = headKind(column);
        const name = batchName(column.batch, names);
        return (
          <button
            key={column.batch}
            type="button"
            className={classes.head}
            data-kind={kind}
            disabled={!onPick}
            tabIndex={i === current ? 0 : -1}
            title={kind === "full" ? undefined : name}
            aria-label={texts[i]}
            style={{ left: column.x, width: column.width }}
            onFocus={() => setStop(i)}
            onClick={() => onPick?.(column.batch)}
          >
            {kind === "none" ? null : kind === "number" ? (column.batch + 1).toLocaleString() : name}
            {kind === "full" ? <span className={classes.headCount}>{column.count.toLocaleString()}</span> : null}
          </button>
        );
      })}
    </div>
  );
}
