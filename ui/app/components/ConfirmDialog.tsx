import { Button, Group, Modal, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { messageOf } from "~/api/client";
import { useReturnFocus } from "~/hooks/useReturnFocus";
import { Callout } from "./Callout";
import { ReasonButton } from "./ReasonButton";

interface Props {
  title: string;
  children: ReactNode;
  /** A verb and its object, such as "Cancel upgrade". */
  confirm: string;
  keep?: string;
  /** Why it cannot be confirmed, if it cannot. */
  reason?: string | null;
  /** For harmless actions: the button has the ordinary colour. */
  harmless?: boolean;
  busy: boolean;
  error: unknown;
  onConfirm: () => void;
  onClose: () => void;
}

export function ConfirmDialog({ title, children, confirm, keep = "Keep", reason = null, harmless, busy, error, onConfirm, onClose }: Props) {
  useReturnFocus();
  return (
    <Modal opened onClose={onClose} title={<Text fw={600}>{title}</Text>} centered closeButtonProps={{ "aria-label": "Close" }}>
      <Stack>
        <Text size="sm" component="div">{children}</Text>
        {error ? <Callout kind="error">{messageOf(error)}</Callout> : null}
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={onClose} data-autofocus>{keep}</Button>
          <ReasonButton color={harmless ? undefined : "red.8"} reason={reason} loading={busy} onClick={onConfirm}>{confirm}</ReasonButton>
        </Group>
      </Stack>
    </Modal>
  );
}
