import { Button, Tooltip, type ButtonProps } from "@mantine/core";
import { useId, type ButtonHTMLAttributes } from "react";

type Props = Omit<ButtonProps & ButtonHTMLAttributes<HTMLButtonElement>, "disabled"> & {
  /** Why it cannot be pressed; null when it can. */
  reason: string | null;
};

/**
 * A button that, while it cannot be pressed, can still be reached and says why.
 * A disabled one takes no focus and shows no tooltip.
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
      {reason ? <span id={id} className="sr-only">{reason}</span> : null}
    </>
  );
}
