import { ActionIcon, Button, CopyButton } from "@mantine/core";
import { IconCheck, IconCopy } from "@tabler/icons-react";
import classes from "./CopyBlock.module.css";

/** A command to run elsewhere. It wraps, so that all of what is copied is visible. */
export function CopyBlock({ text, label }: { text: string; label: string }) {
  return (
    <div className={classes.block}>
      <pre tabIndex={0} role="group" aria-label={label}>
        <code>{text}</code>
      </pre>
      <CopyButton value={text} timeout={2000}>
        {({ copied, copy }) => (
          <Button size="xs" variant="default" onClick={copy} leftSection={copied ? <IconCheck size={14} aria-hidden /> : <IconCopy size={14} aria-hidden />}>
            <span aria-live="polite">{copied ? "Copied" : "Copy"}</span>
          </Button>
        )}
      </CopyButton>
    </div>
  );
}

export function CopyIcon({ text, label }: { text: string; label: string }) {
  return (
    <CopyButton value={text} timeout={2000}>
      {({ copied, copy }) => (
        <ActionIcon size="sm" variant="subtle" color="gray" onClick={copy} aria-label={copied ? "Copied" : label}>
          {copied ? <IconCheck size={14} aria-hidden /> : <IconCopy size={14} aria-hidden />}
        </ActionIcon>
      )}
    </CopyButton>
  );
}
