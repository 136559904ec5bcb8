import { type GridLayout, originOf } from "~/util/grid/gridLayout";
import type { CellText } from "~/util/grid/gridText";
import { GridSwatch } from "./GridSwatch";
import classes from "./HostGrid.module.css";

/** What a cell is, beside it. It opens towards the middle of the grid, so that the edge does not cut it. */
export function CellTip({ text, layout, cell }: { text: CellText; layout: GridLayout; cell: number }) {
  const { x, y } = originOf(layout, cell);
  const right = x > layout.width / 2 && x > 240;
  return (
    <div className={classes.tip} data-side={right ? "right" : "left"} aria-hidden style={{ left: right ? x : x + layout.cell, top: y + layout.cell / 2 }}>
      <strong className="mono">{text.title}</strong>
      <span className={classes.tipState}>
        <GridSwatch group={text.group} /> {text.word}
      </span>
      <span className={classes.tipBatch}>{text.batch}</span>
    </div>
  );
}
