/** The agent's document as the API has it. */
import { useState } from "react";
import type { Agent } from "~/api/types";
import { CopyIcon } from "~/components/base/CopyBlock";
import classes from "./Side.module.css";

export function RawDocument({ agent }: { agent: Agent }) {
  const [open, setOpen] = useState(false);
  return (
    <details className={classes.raw} onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary>The agent’s document, as JSON</summary>
      {open ? <Json of={agent} /> : null}
    </details>
  );
}

function Json({ of }: { of: Agent }) {
  const text = JSON.stringify(of, null, 2);
  return (
    <div className={classes.json}>
      <pre tabIndex={0} role="group" aria-label="JSON of the agent">
        {text}
      </pre>
      <span className={classes.copy}>
        <CopyIcon text={text} label="Copy the JSON" />
      </span>
    </div>
  );
}
