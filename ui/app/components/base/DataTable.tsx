/** A table whose rows the server pages and sorts. Rows can be selected and walked through with the keyboard (j, k, x, e). */
import { IconArrowDown, IconArrowsSort, IconArrowUp, IconChevronDown, IconChevronRight } from "@tabler/icons-react";
import { type KeyboardEvent, memo, type ReactNode, useEffect, useRef, useState } from "react";
import { moveRow, type RowKey } from "~/util/rows";
import { Check } from "./Check";
import classes from "./DataTable.module.css";

export interface Column<T> {
  id: string;
  header: string;
  /** The header is for screen readers alone. */
  quiet?: boolean;
  cell: (row: T) => ReactNode;
  /** The server can sort by this column. */
  sort?: boolean;
  align?: "end";
  /** CSS width, such as "20%" or "120px"; without one the column shares what is left. */
  width?: string;
  /** Cells are not wrapped. */
  nowrap?: boolean;
  /** Left out below 640 px. */
  wide?: boolean;
}

export interface Sort {
  column: string;
  desc: boolean;
}

interface Props<T> {
  /** What the table lists; its name for screen readers. */
  label: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  rowId: (row: T) => string;
  sort?: Sort;
  onSort?: (sort: Sort) => void;
  selected?: ReadonlySet<string>;
  onSelect?: (ids: ReadonlySet<string>) => void;
  /** Why a row cannot be selected. */
  locked?: (row: T) => string | null;
  /** The name of a row in the labels of its checkbox and of its details. */
  rowName?: (row: T) => string;
  onOpen?: (row: T) => void;
  /** What is shown below an expanded row. */
  expanded?: (row: T) => ReactNode;
  /** The row that is expanded, if it is the caller's state; then one at most is. */
  openRow?: { id?: string; onChange: (id?: string) => void };
  density?: "compact" | "comfortable";
  /** A thin bar while newer rows are being read; the old ones stay. */
  busy?: boolean;
  /** Columns keep their widths whatever their cells hold, for rows that change live. The frame scrolls below this width in pixels. */
  fixed?: number;
}

export function DataTable<T>(props: Props<T>) {
  const { label, columns, rows, rowId, sort, onSort, selected, onSelect, locked, rowName, onOpen, expanded, openRow, density = "compact", busy, fixed } = props;
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const open = openRow ? new Set([openRow.id]) : opened;
  const body = useRef<HTMLTableSectionElement>(null);
  const free = rows.filter((r) => !locked?.(r));
  const picked = free.filter((r) => selected?.has(rowId(r))).length;

  const toggle = (row: T) => {
    if (!onSelect || locked?.(row)) return;
    const next = new Set(selected);
    if (!next.delete(rowId(row))) next.add(rowId(row));
    onSelect(next);
  };
  const expand = (row: T) => {
    if (openRow) {
      openRow.onChange(openRow.id === rowId(row) ? undefined : rowId(row));
      return;
    }
    const next = new Set(opened);
    if (!next.delete(rowId(row))) next.add(rowId(row));
    setOpened(next);
  };
  const act = (key: RowKey, index: number) => {
    const row = rows[index];
    if (key === "j" || key === "k") body.current?.querySelectorAll<HTMLElement>("tr[data-row]")[moveRow(key, index, rows.length)]?.focus();
    else if (row && key === "x") toggle(row);
    else if (row && key === "e" && expanded) expand(row);
    else if (row && key === "Enter") onOpen?.(row);
  };
  const act_ = useRef(act);
  act_.current = act;

  // j and k work from anywhere on the page: the first one enters the table.
  useEffect(() => {
    const listen = (event: Event) => {
      const active = document.activeElement?.closest("tr[data-row]");
      const index = active && body.current?.contains(active) ? Number(active.getAttribute("data-row")) : -1;
      act_.current((event as CustomEvent<RowKey>).detail, index);
    };
    window.addEventListener("muster:row", listen);
    return () => window.removeEventListener("muster:row", listen);
  }, []);

  const onKeyDown = (e: KeyboardEvent, index: number) => {
    if (e.target !== e.currentTarget) return;
    if (e.key === "ArrowDown" || e.key === "ArrowUp") act(e.key === "ArrowDown" ? "j" : "k", index);
    else if (e.key === "Enter" && onOpen) act("Enter", index);
    else return;
    e.preventDefault();
  };

  return (
    // The keyboard scrolls a wide table by the controls in it, or else by the frame.
    <div className={classes.frame} data-density={density} tabIndex={onSelect || onSort || onOpen ? undefined : 0} role="group" aria-label={label}>
      <div className={classes.bar} data-busy={busy || undefined} aria-hidden />
      <table
        className={classes.table}
        data-fixed={fixed ? true : undefined}
        style={fixed ? { minWidth: fixed } : undefined}
        aria-label={label}
        aria-busy={busy || undefined}
      >
        <thead>
          <tr>
            {onSelect ? (
              <th className={classes.check}>
                <Check
                  aria-label="Select the rows of this page"
                  checked={picked > 0 && picked === free.length}
                  indeterminate={picked > 0 && picked < free.length}
                  disabled={free.length === 0}
                  onChange={() => onSelect(picked === free.length ? new Set() : new Set(free.map(rowId)))}
                />
              </th>
            ) : null}
            {expanded ? (
              <th className={classes.check}>
                <span className="sr-only">Details</span>
              </th>
            ) : null}
            {columns.map((c) => (
              <th
                key={c.id}
                data-align={c.align}
                data-wide={c.wide || undefined}
                style={c.width ? { width: c.width } : undefined}
                aria-sort={sort?.column === c.id ? (sort.desc ? "descending" : "ascending") : undefined}
              >
                {c.sort && onSort ? (
                  <button type="button" className={classes.sort} onClick={() => onSort({ column: c.id, desc: sort?.column === c.id && !sort.desc })}>
                    {c.header}
                    <SortIcon on={sort?.column === c.id} desc={sort?.desc ?? false} />
                  </button>
                ) : c.quiet ? (
                  <span className="sr-only">{c.header}</span>
                ) : (
                  c.header
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody ref={body}>
          {rows.map((row, index) => {
            const id = rowId(row);
            const why = locked?.(row) ?? null;
            return [
              <tr key={id} data-row={index} data-picked={selected?.has(id) || undefined} tabIndex={-1} onKeyDown={(e) => onKeyDown(e, index)}>
                {onSelect ? (
                  <td className={classes.check} title={why ?? undefined}>
                    <Check
                      aria-label={`Select ${rowName?.(row) ?? id}`}
                      checked={selected?.has(id) ?? false}
                      disabled={why !== null}
                      onChange={() => toggle(row)}
                    />
                  </td>
                ) : null}
                {expanded ? (
                  <td className={classes.check}>
                    <button
                      type="button"
                      className={classes.expand}
                      aria-expanded={open.has(id)}
                      aria-label={`Details of ${rowName?.(row) ?? id}`}
                      onClick={() => expand(row)}
                    >
                      {open.has(id) ? <IconChevronDown size={14} aria-hidden /> : <IconChevronRight size={14} aria-hidden />}
                    </button>
                  </td>
                ) : null}
                <Cells columns={columns as readonly Column<unknown>[]} row={row} />
              </tr>,
              expanded && open.has(id) ? (
                <tr key={`${id} details`} className={classes.details}>
                  <td colSpan={columns.length + 1 + (onSelect ? 1 : 0)}>{expanded(row)}</td>
                </tr>
              ) : null,
            ];
          })}
        </tbody>
      </table>
    </div>
  );
}

/** Drawn again only for another row: selecting one of fifty draws no other. */
const Cells = memo(function Cells({ columns, row }: { columns: readonly Column<unknown>[]; row: unknown }) {
  return columns.map((c) => (
    <td key={c.id} data-align={c.align} data-nowrap={c.nowrap || undefined} data-wide={c.wide || undefined}>
      {c.cell(row)}
    </td>
  ));
});

function SortIcon({ on, desc }: { on: boolean; desc: boolean }) {
  if (!on) return <IconArrowsSort size={12} aria-hidden className={classes.unsorted} />;
  return desc ? <IconArrowDown size={12} aria-hidden /> : <IconArrowUp size={12} aria-hidden />;
}
