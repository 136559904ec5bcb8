/** The hosts of a rollout: one cell a host, one column a batch, in the colour and shape of its state. */
import { useElementSize, useMergedRef } from "@mantine/hooks";
import { type KeyboardEvent, type MouseEvent, useEffect, useId, useMemo, useRef, useState } from "react";
import { useScheme } from "~/hooks/useScheme";
import { colorsOf } from "~/util/chart/canvasColor";
import { cellCodes, codesOf, countCodes, GRID_GROUPS, type GridGroup } from "~/util/grid/gridClass";
import { cellAt, cellOf, type GridLayout, layOut, moved, originOf } from "~/util/grid/gridLayout";
import { type BatchNames, batchText, binNote, cellText, representative } from "~/util/grid/gridText";
import { plural } from "~/util/words";
import { BatchHeads } from "./BatchHeads";
import { CellTip } from "./CellTip";
import { GridLegend } from "./GridLegend";
import classes from "./HostGrid.module.css";
import { GRID_COLORS, lookOf, paint, pictureOf, type Sheet, sheetOf } from "./paint";

interface Props {
  batches: readonly number[];
  states: readonly string[];
  progress?: readonly string[];
  hostnames: readonly string[];
  agentIds: readonly string[];
  onPick: (agentId: string) => void;
  onPickBatch?: (batch: number) => void;
  /** The id of the agent whose panel is open. */
  picked?: string;
  /** The groups that are not faded; none: all. */
  shown?: readonly GridGroup[];
  onShow?: (shown: GridGroup[]) => void;
  batchNames?: BatchNames;
}

const NONE: readonly GridGroup[] = [];
const NO_CELL = -1;

export function HostGrid({ batches, states, progress, hostnames, agentIds, onPick, onPickBatch, picked, shown = NONE, onShow, batchNames }: Props) {
  const { ref: box, width } = useElementSize();
  const scroller = useRef<HTMLDivElement>(null);
  const boxes = useMergedRef(box, scroller);
  const helpId = useId();
  const layout = useMemo(() => layOut(batches, { width: width || 1 }), [batches, width]);
  const codes = useMemo(() => codesOf(states, progress), [states, progress]);
  // Not at each movement of the pointer: they count all hosts.
  const counts = useMemo(() => countCodes(codes), [codes]);
  const heads = useMemo(() => layout.columns.map((c) => batchText(layout, c, codes, batchNames)), [layout, codes, batchNames]);
  const looks = useLooks(layout, codes, shown);
  const canvas = usePainted(layout, looks, width > 0);
  const [hovered, setHovered] = useState(NO_CELL);
  const [focused, setFocused] = useState(NO_CELL);
  const [keyboard, setKeyboard] = useState(false);

  const targets = { states, progress, hostnames };
  const textOf = (cell: number) => (cell >= 0 && cell < layout.cells ? cellText(layout, cell, targets, batchNames) : undefined);
  const pick = (cell: number) => cell >= 0 && cell < layout.cells && onPick(agentIds[representative(layout, cell, targets)]!);
  const pickedAt = picked === undefined ? NO_CELL : agentIds.indexOf(picked);
  const pickedCell = pickedAt < 0 ? NO_CELL : cellOf(layout, pickedAt);
  const at = (event: MouseEvent<HTMLElement>) => {
    const { left, top } = event.currentTarget.getBoundingClientRect();
    return cellAt(layout, event.clientX - left, event.clientY - top);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || layout.cells === 0) return;
    const from = Math.min(Math.max(0, focused), layout.cells - 1);
    if (event.key === "Enter" || event.key === " ") pick(from);
    else if (event.key === "Escape" && keyboard) setKeyboard(false);
    else {
      const to = moved(layout, from, event.key);
      if (to === undefined) return;
      setFocused(to);
      setKeyboard(true);
      scroller.current?.scrollTo({ left: originOf(layout, to).x - width / 2 });
    }
    event.preventDefault();
  };
  const tipCell = keyboard ? focused : hovered;
  const tip = textOf(tipCell);
  const announced = keyboard ? textOf(focused) : undefined;

  return (
    <div className={classes.grid}>
      <GridLegend counts={counts} shown={shown} onShow={onShow} />
      <div ref={boxes} className={classes.box} data-scrolls={layout.width > width || undefined}>
        <div className={classes.content} style={{ width: Math.max(layout.width + layout.gap, 0) }}>
          <BatchHeads columns={layout.columns} names={batchNames} onPick={onPickBatch} texts={heads} />
          <div
            className={classes.cells}
            role="application"
            aria-roledescription="grid of hosts"
            aria-label={`${plural(states.length, "host")} by batch`}
            aria-describedby={helpId}
            tabIndex={0}
            style={{ height: layout.height + layout.gap }}
            onKeyDown={onKeyDown}
            onFocus={(event) => {
              setFocused((old) => (old === NO_CELL ? Math.max(0, pickedCell) : Math.min(old, layout.cells - 1)));
              setKeyboard(event.currentTarget.matches(":focus-visible"));
            }}
            onBlur={() => setKeyboard(false)}
            onPointerMove={(event) => {
              setHovered(at(event));
              setKeyboard(false);
            }}
            onPointerLeave={() => setHovered(NO_CELL)}
            onClick={(event) => {
              const cell = at(event);
              if (cell === NO_CELL) return;
              setFocused(cell);
              pick(cell);
            }}
            data-pointed={hovered !== NO_CELL || undefined}
          >
            <canvas ref={canvas} className={classes.canvas} aria-hidden />
            <Frame layout={layout} cell={pickedCell} kind="picked" />
            <Frame layout={layout} cell={tipCell} kind="pointed" />
          </div>
          {tip ? <CellTip text={tip} layout={layout} cell={tipCell} /> : null}
        </div>
      </div>
      <p id={helpId} className="sr-only">
        The arrow keys move between hosts, Page Up and Page Down between batches. Enter opens the host.
      </p>
      <p className="sr-only" role="status">
        {announced ? `${announced.title}: ${announced.word}. ${announced.batch}.` : ""}
      </p>
      {binNote(layout) ? <p className={classes.note}>{binNote(layout)}</p> : null}
    </div>
  );
}

/** A frame around a cell, above the canvas, so that pointing at a cell paints nothing. */
function Frame({ layout, cell, kind }: { layout: GridLayout; cell: number; kind: "picked" | "pointed" }) {
  if (cell < 0 || cell >= layout.cells) return null;
  const { x, y } = originOf(layout, cell);
  return (
    <span className={classes.frame} data-kind={kind} aria-hidden style={{ width: layout.cell, height: layout.cell, transform: `translate(${x}px, ${y}px)` }} />
  );
}

function useLooks(layout: GridLayout, codes: Uint8Array, shown: readonly GridGroup[]): Uint8Array {
  return useMemo(() => {
    const faded = GRID_GROUPS.map((g) => shown.length > 0 && !shown.includes(g));
    return cellCodes(layout, codes).map((code) => lookOf(code, faded[code]!));
  }, [layout, codes, shown]);
}

/** usePainted keeps a canvas painted: all of it for another layout or scheme, else only the cells that differ. */
function usePainted(layout: GridLayout, looks: Uint8Array, ready: boolean) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const scheme = useScheme();
  const ratio = window.devicePixelRatio || 1;
  const last = useRef<{ of: readonly unknown[]; sheet: Sheet; picture: ImageData; looks: Uint8Array } | null>(null);
  useEffect(() => {
    const node = canvas.current;
    const context = node?.getContext("2d");
    if (!node || !context || !ready) return;
    const of = [layout, scheme, ratio];
    const before = last.current?.of.every((part, i) => part === of[i]) ? last.current : null;
    const picture = before?.picture ?? pictureOf(layout, ratio);
    const sheet = before?.sheet ?? sheetOf(layout, ratio, colorsOf(node.parentElement!, GRID_COLORS));
    const painted = paint(picture, sheet, layout, ratio, looks, before?.looks);
    if (!before) {
      node.width = picture.width;
      node.height = picture.height;
      node.style.width = `${picture.width / ratio}px`;
      node.style.height = `${picture.height / ratio}px`;
    }
    if (painted > 0) context.putImageData(picture, 0, 0);
    last.current = { of, sheet, picture, looks };
  }, [layout, looks, ready, scheme, ratio]);
  return canvas;
}
