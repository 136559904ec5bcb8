/** A question with one verb: what happens to how many, and Cancel. */
import { Button, Modal, Textarea, TextInput } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { messageOf } from "~/api/client";
import { Callout } from "~/components/base/Callout";
import { ReasonButton } from "~/components/base/ReasonButton";
import { useReturnFocus } from "~/hooks/useReturnFocus";
import classes from "./Dialog.module.css";

interface Props {
  /** The question: "Upgrade 1,800 hosts to 2.4.1?" */
  title: string;
  children?: ReactNode;
  /** Verb and object, such as "Upgrade 1,800 hosts". */
  confirm: string;
  /** The button is filled red, since the command is hard to undo. */
  danger?: boolean;
  /** What the operator types before the button works; it names what happens to how many. */
  typed?: string;
  /** Whether a reason is asked for, which the audit trail keeps. */
  why?: "optional" | "required";
  /** Why it cannot be confirmed now. */
  reason?: string | null;
  busy?: boolean;
  error?: unknown;
  size?: string;
  onConfirm: (why: string) => void;
  onClose: () => void;
}

export function Dialog({ title, children, confirm, danger, typed, why, reason, busy, error, size, onConfirm, onClose }: Props) {
  useReturnFocus();
  const [text, setText] = useState("");
  const [given, setGiven] = useState("");
  const blocked =
    reason ??
    (why === "required" && given.trim() === "" ? "Give a reason first." : null) ??
    (typed !== undefined && text.trim() !== typed ? `Type “${typed}” first.` : null);
  return (
    <Modal opened onClose={onClose} size={size} centered title={title} closeButtonProps={{ "aria-label": "Close" }} classNames={{ title: classes.title }}>
      <form
        className={classes.form}
        onSubmit={(e) => {
          e.preventDefault();
          if (!blocked && !busy) onConfirm(given.trim());
        }}
      >
        {children ? <div className={classes.body}>{children}</div> : null}
        {why ? (
          <Textarea
            label={why === "required" ? "Reason" : "Reason (optional)"}
            description="The audit trail keeps it."
            required={why === "required"}
            autosize
            minRows={2}
            maxRows={6}
            maxLength={1000}
            value={given}
            onChange={(e) => setGiven(e.currentTarget.value)}
          />
        ) : null}
        {typed !== undefined ? (
          <TextInput
            label={
              <>
                Type <span className={`mono ${classes.typed}`}>{typed}</span> to confirm
              </>
            }
            autoComplete="off"
            spellCheck={false}
            value={text}
            onChange={(e) => setText(e.currentTarget.value)}
          />
        ) : null}
        {error ? <Callout kind="error">{messageOf(error)}</Callout> : null}
        <div className={classes.buttons}>
          <Button variant="default" onClick={onClose} data-autofocus={why || typed !== undefined ? undefined : true}>
            Cancel
          </Button>
          <ReasonButton type="submit" color={danger ? "red" : undefined} reason={blocked} loading={busy}>
            {confirm}
          </ReasonButton>
        </div>
      </form>
    </Modal>
  );
}
