/** The failures of a rollout by cause. Each shows its hosts in the table. */

import { IconArrowBackUp } from "@tabler/icons-react";
import type { RolloutCause } from "~/api/types";
import type { BoardSearch } from "~/util/rollout/rolloutSearch";
import { progressWord } from "~/util/state";
import { closed } from "~/util/words";
import { Badge } from "../base/Badge";
import classes from "./Board.module.css";

interface Props {
  causes: readonly RolloutCause[];
  /** The reason that the table shows. */
  code?: string;
  onShow: (change: Partial<BoardSearch>) => void;
}

export function Causes({ causes, code, onShow }: Props) {
  const all = Math.max(
    1,
    causes.reduce((n, c) => n + c.count, 0),
  );
  return (
    <ul className={classes.causes}>
      {causes.map((c) => (
        <li key={`${c.state} ${c.code} ${c.text}`}>
          <button
            type="button"
            className={classes.cause}
            aria-pressed={code === c.code}
            // The causes that are counted together have no code of their own.
            onClick={() =>
              onShow(
                code === c.code
                  ? { code: undefined }
                  : c.code === "other"
                    ? { code: undefined, state: ["failed", "rolled_back"] }
                    : { code: c.code, state: [c.state === "rolled_back" ? "rolled_back" : "failed"] },
              )
            }
          >
            <span className={classes.causeHead}>
              <Badge tone="bad" icon={c.state === "rolled_back" ? IconArrowBackUp : undefined}>
                {progressWord[c.state === "rolled_back" ? "rolled_back" : "failed"]}
              </Badge>
              <span className={classes.causeCount}>{c.count.toLocaleString()}</span>
            </span>
            <span className={classes.causeText}>{c.text}</span>
            {c.sample && !c.text.includes(c.sample) ? <span className={`mono ${classes.causeSample}`}>{closed(c.sample)}</span> : null}
            <span className={classes.causeBar} aria-hidden>
              <span style={{ width: `${(c.count * 100) / all}%` }} />
            </span>
          </button>
        </li>
      ))}
    </ul>
  );
}
