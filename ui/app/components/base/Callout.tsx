import { IconAlertTriangle, IconCircleCheck, IconInfoCircle } from "@tabler/icons-react";
import type { ReactNode } from "react";
import classes from "./Callout.module.css";

const icons = { good: IconCircleCheck, info: IconInfoCircle, warning: IconAlertTriangle, error: IconAlertTriangle };

interface Props {
  kind: keyof typeof icons;
  title?: ReactNode;
  icon?: ReactNode;
  children: ReactNode;
}

/** A message within the page. Screen readers announce errors at once. */
export function Callout({ kind, title, icon, children }: Props) {
  const Icon = icons[kind];
  return (
    <div className={classes.callout} data-kind={kind} role={kind === "error" ? "alert" : undefined}>
      <span className={classes.icon}>{icon ?? <Icon size={18} aria-hidden />}</span>
      <div className={classes.body}>
        {title ? <div className={classes.title}>{title}</div> : null}
        {children}
      </div>
    </div>
  );
}
