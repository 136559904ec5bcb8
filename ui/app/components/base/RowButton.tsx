/** A quiet button in a row of a table. */
import type { ButtonHTMLAttributes } from "react";
import classes from "./RowButton.module.css";

interface Props extends Omit<ButtonHTMLAttributes<HTMLButtonElement>, "aria-label" | "disabled"> {
  /** The verb with the name of the row, since the same verb is in every row. */
  label: string;
  busy?: boolean;
  /** What it does is hard to undo. */
  danger?: boolean;
}

/** While busy it keeps the focus, and a second click does nothing. */
export function RowButton({ label, busy, danger, onClick, ...rest }: Props) {
  return (
    <button
      type="button"
      className={classes.button}
      data-danger={danger || undefined}
      aria-label={label}
      aria-busy={busy || undefined}
      onClick={busy ? undefined : onClick}
      {...rest}
    />
  );
}
