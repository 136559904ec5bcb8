/** What an order would do: how many hosts it changes, and the others by the reason, with what includes them anyway. */
import { Checkbox } from "@mantine/core";
import { IconAlertTriangle, IconInfoCircle, IconMinus } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { messageOf } from "~/api/client";
import type { PreviewCause } from "~/api/types";
import { type CauseGroups, groupCauses, hostsText, verdictText } from "~/util/upgrade/causes";
import { plural, sentence } from "~/util/words";
import { Callout } from "../base/Callout";
import classes from "./OrderPreview.module.css";

type Choice = CauseGroups["choices"][number]["choice"];

interface Props {
  preview: { will: number; wont: number; causes?: PreviewCause[] } | undefined;
  error: unknown;
  /** The preview is of an earlier form; a newer one is being read. */
  stale?: boolean;
  /** What the hosts do, as in "be upgraded". */
  does: string;
  /** Causes without any choice taken: those that are offered. */
  offered?: readonly PreviewCause[];
  taken?: Partial<Record<Choice, boolean>>;
  onTake?: (choice: Choice, on: boolean) => void;
  /** The hosts are selected by a query. */
  byQuery?: boolean;
  /** What happens after it. */
  after?: ReactNode;
}

export function OrderPreview({ preview, error, stale, does, offered, taken = {}, onTake, byQuery, after }: Props) {
  if (error)
    return (
      <Callout kind="error" title="The preview could not be read">
        {messageOf(error)} Nothing has been changed.
      </Callout>
    );
  if (!preview)
    return (
      <p className={classes.waiting} role="status">
        Reading the preview
      </p>
    );
  const { choices } = groupCauses(offered ?? preview.causes);
  const { fixed, remarks } = groupCauses(preview.causes);
  // What a choice could not include after all, or is not offered here, is listed as it is.
  const left = groupCauses(preview.causes)
    .choices.filter((c) => taken[c.choice] || !onTake || !choices.some((o) => o.choice === c.choice))
    .flatMap((c) => c.causes);
  return (
    <section aria-label="Preview" className={classes.preview} data-stale={stale || undefined}>
      <div className={classes.verdict} role="status">
        {verdictText(preview.will, preview.wont, does)}
      </div>
      {onTake
        ? choices.map(({ choice, causes, count }) => (
            <div key={choice} className={classes.choice}>
              <Checkbox
                checked={taken[choice] ?? false}
                onChange={(e) => onTake(choice, e.currentTarget.checked)}
                label={`Include ${count === 1 ? "this host" : `these ${plural(count, "host")}`} anyway`}
              />
              <ul className={classes.causes}>
                {causes.map((c) => (
                  <Cause key={c.text} cause={c} icon={<IconAlertTriangle size={14} aria-hidden />} />
                ))}
              </ul>
            </div>
          ))
        : null}
      {fixed.length + left.length + remarks.length > 0 ? (
        <ul className={classes.causes}>
          {[...left, ...fixed].map((c) => (
            <Cause key={`${c.text} not`} cause={c} icon={<IconMinus size={14} aria-hidden />} word="Left out: " />
          ))}
          {remarks.map((c) => (
            <Cause key={c.text} cause={c} icon={<IconInfoCircle size={14} aria-hidden />} />
          ))}
        </ul>
      ) : null}
      {(after || byQuery) && preview.will > 0 ? (
        <p className={classes.after}>
          {after}
          {byQuery ? " The server selects the hosts by the query again when you confirm." : ""}
        </p>
      ) : null}
    </section>
  );
}

function Cause({ cause, icon, word }: { cause: PreviewCause; icon: ReactNode; word?: string }) {
  return (
    <li className={classes.cause}>
      {icon}
      <span>
        {word ? <span className="sr-only">{word}</span> : null}
        <strong>{plural(cause.count, "host")}</strong> {sentence(cause.text)}
        <span className={classes.hosts}>{hostsText(cause)}</span>
      </span>
    </li>
  );
}
