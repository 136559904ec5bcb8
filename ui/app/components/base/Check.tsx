/** A checkbox of the browser's own: a table draws fifty at once, for which the library's takes several times as long. */
import type { InputHTMLAttributes } from "react";
import classes from "./Check.module.css";

interface Props extends Omit<InputHTMLAttributes<HTMLInputElement>, "type" | "className"> {
  /** Some of what it stands for is checked. */
  indeterminate?: boolean;
}

export function Check({ indeterminate = false, ...rest }: Props) {
  return (
    <input
      {...rest}
      type="checkbox"
      className={classes.box}
      ref={(box) => {
        if (box) box.indeterminate = indeterminate;
      }}
    />
  );
}
