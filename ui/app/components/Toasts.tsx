import { ActionIcon, Group, Paper, Text } from "@mantine/core";
import { IconAlertTriangle, IconCircleCheck, IconX } from "@tabler/icons-react";
import { createContext, type ReactNode, useCallback, useContext, useRef, useState } from "react";
import classes from "./Toasts.module.css";

/** Long enough to read a line and follow its link. An error stays until it is closed. */
const SHOWN_MS = 8_000;
/** Older ones are removed. */
const MOST = 3;

interface Toast {
  kind: "done" | "error";
  title: string;
  body?: ReactNode;
}

const Context = createContext<(toast: Toast) => void>(() => {});

/** useToast returns the function that shows a message in the corner of the page. */
export function useToast(): (toast: Toast) => void {
  return useContext(Context);
}

export function Toasts({ children }: { children: ReactNode }) {
  const [shown, setShown] = useState<(Toast & { id: number })[]>([]);
  const nextId = useRef(1);
  const remove = useCallback((id: number) => setShown((all) => all.filter((t) => t.id !== id)), []);
  const show = useCallback(
    (toast: Toast) => {
      const id = nextId.current++;
      setShown((all) => [...all.slice(1 - MOST), { ...toast, id }]);
      if (toast.kind === "done") setTimeout(() => remove(id), SHOWN_MS);
    },
    [remove],
  );

  return (
    <Context value={show}>
      {children}
      <div className={classes.region} role="status" aria-live="polite" aria-label="Messages">
        {shown.map((toast) => (
          <Paper key={toast.id} className={classes.toast} data-kind={toast.kind} withBorder shadow="md" p="sm">
            <Group wrap="nowrap" align="flex-start" gap="sm">
              {toast.kind === "done" ? <IconCircleCheck size={20} aria-hidden /> : <IconAlertTriangle size={20} aria-hidden />}
              <div className={classes.text}>
                <Text size="sm" fw={600}>
                  {toast.title}
                </Text>
                {toast.body ? (
                  <Text size="sm" component="div">
                    {toast.body}
                  </Text>
                ) : null}
              </div>
              <ActionIcon variant="subtle" color="gray" size="sm" aria-label="Close message" onClick={() => remove(toast.id)}>
                <IconX size={14} aria-hidden />
              </ActionIcon>
            </Group>
          </Paper>
        ))}
      </div>
    </Context>
  );
}
