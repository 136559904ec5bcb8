/** How many hosts of an action are how far: a thin bar, and the same in words and numbers. */
import { Fragment } from "react";
import type { ActionStatus } from "~/api/types";
import { TextLink } from "~/components/base/TextLink";
import { hostsOf, partsOf } from "~/util/activity/action";
import { plural } from "~/util/words";
import classes from "./Activity.module.css";

/** Each part leads to its hosts. */
export function Parts({ action }: { action: ActionStatus }) {
  const parts = partsOf(action);
  const total = hostsOf(action);
  if (total === 0) return <span className={classes.none}>No hosts</span>;
  return (
    <div className={classes.parts}>
      <span className={classes.bar} aria-hidden>
        {parts.map((p) => (
          <span key={p.state} data-tone={p.tone} data-state={p.state} style={{ flexGrow: p.count }} />
        ))}
      </span>
      <span className={classes.words}>
        {parts.map((p, i) => (
          <Fragment key={p.state}>
            {i > 0 ? " · " : null}
            <span className={classes.part} data-tone={p.tone}>
              {action.policyId ? (
                <>
                  <b>{p.count.toLocaleString()}</b> {p.word.toLowerCase()}
                </>
              ) : (
                <TextLink
                  to="/activity"
                  search={(old) => ({ ...old, open: action.actionId, state: p.state, hosts: undefined })}
                  inherit
                  className={classes.partLink}
                >
                  <b>{p.count.toLocaleString()}</b> {p.word.toLowerCase()}
                </TextLink>
              )}
            </span>
          </Fragment>
        ))}
        {parts.length > 1 ? (
          <span className={classes.of}> of {plural(total, "host")}</span>
        ) : (
          <span className={classes.of}>{total === 1 ? "" : ", all hosts"}</span>
        )}
      </span>
    </div>
  );
}
