import "@mantine/notifications/styles.layer.css";
import { Notifications, notifications } from "@mantine/notifications";
import { IconAlertTriangle, IconCircleCheck } from "@tabler/icons-react";
import classes from "./ToastList.module.css";
import type { Toast } from "./Toasts";

/** Long enough to read a line and follow its link. An error stays until it is closed. */
const SHOWN_MS = 8_000;
/** Others wait. Errors, which stay, make room for what is done. */
const MOST = 3;
/** Of one message; enough for a long error on a phone. */
const HEIGHT_PX = 400;

export function show({ kind, title, body }: Toast): void {
  const done = kind === "done";
  const Icon = done ? IconCircleCheck : IconAlertTriangle;
  notifications.show({
    title,
    message: body,
    autoClose: done ? SHOWN_MS : false,
    priority: done ? 1 : 0,
    classNames: { icon: classes.icon, description: classes.body },
    icon: <Icon size={20} color={done ? "var(--ok)" : "var(--bad)"} aria-hidden />,
    role: "group", // the region around speaks it, and does not interrupt
    "aria-label": title,
    closeButtonProps: { "aria-label": "Close message" },
  });
}

/** Messages are not dragged, so that the text of an error can be copied. */
export default function ToastList() {
  return (
    <Notifications
      withinPortal={false}
      zIndex={400}
      limit={MOST}
      containerWidth={380}
      notificationMaxHeight={HEIGHT_PX}
      transitionDuration={150}
      allowDragDismiss={false}
      allowScrollDismiss={false}
      classNames={{ notification: classes.toast }}
    />
  );
}
