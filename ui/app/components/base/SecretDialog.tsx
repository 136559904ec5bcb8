/** A secret that the server shows once. */
import { Button, Modal } from "@mantine/core";
import type { ReactNode } from "react";
import { Callout } from "~/components/base/Callout";
import { CopyBlock } from "~/components/base/CopyBlock";
import { useReturnFocus } from "~/hooks/useReturnFocus";
import classes from "./Dialog.module.css";

interface Props {
  title: string;
  /** What the secret is, for screen readers. */
  label: string;
  secret: string;
  children?: ReactNode;
  onClose: () => void;
}

/** A click beside it does not close it: the secret would be lost. */
export function SecretDialog({ title, label, secret, children, onClose }: Props) {
  useReturnFocus();
  return (
    <Modal
      opened
      onClose={onClose}
      size="lg"
      centered
      title={title}
      closeOnClickOutside={false}
      closeButtonProps={{ "aria-label": "Close" }}
      classNames={{ title: classes.title }}
    >
      <div className={classes.form}>
        <CopyBlock text={secret} label={label} />
        <Callout kind="warning">Copy it now: the server stores no copy and never shows it again.</Callout>
        {children ? <div className={classes.body}>{children}</div> : null}
        <div className={classes.buttons}>
          <Button onClick={onClose}>Done</Button>
        </div>
      </div>
    </Modal>
  );
}
