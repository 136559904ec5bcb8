import { lazy, type ReactNode, Suspense } from "react";

export interface Toast {
  kind: "done" | "error";
  title: string;
  body?: ReactNode;
}

// Apart, since the first page is shown without them; loaded with it, since a new build has other files.
const load = () => import("./ToastList");
const ToastList = lazy(load);

/** toast shows a message in the corner of the page. */
export function toast(message: Toast): void {
  void load().then(({ show }) => show(message));
}

/** Where messages are shown. */
export function Toasts() {
  return (
    <div role="status" aria-live="polite" aria-label="Messages">
      <Suspense>
        <ToastList />
      </Suspense>
    </div>
  );
}
