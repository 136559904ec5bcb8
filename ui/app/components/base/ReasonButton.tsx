import { Button, type ButtonProps, Tooltip } from "@mantine/core";
import { type ButtonHTMLAttributes, useId } from "react";

type Props = Omit<ButtonProps & ButtonHTMLAttributes<HTMLButtonElement>, "disabled"> & {
  /** Why the button is disabled; null if it is enabled. */
  reason: string | null;
};

/**
 * A button that can be focused and shows a reason while it is disabled. A native disabled button
 * takes no focus and shows no tooltip.
 */
export function ReasonButton({ reason, onClick, children, ...rest }: Props) {
  const id = useId();
  return (
    <>
      <Tooltip label={reason} disabled={!reason}>
        <Button
          {...rest}
          data-disabled={reason ? true : undefined}
          aria-disabled={reason ? true : undefined}
          aria-describedby={reason ? id : undefined}
          onClick={reason ? (e) => e.preventDefault() : onClick}
        >
          {children}
        </Button>
      </Tooltip>
      {reason ? (
        <span id={id} className="sr-only">
          {reason}
        </span>
      ) : null}
    </>
  );
}
