import { useQuery } from "@tanstack/react-query";
import { AUDIT_SHOWN, auditQuery, type subjectAuditQuery } from "~/api/queries";
import { Empty, Loading, LoadError, Panel } from "../Blocks";
import { Ago } from "../Now";
import { closed, sentence } from "~/util/words";
import classes from "./Rollout.module.css";

/** Who did what, and why, newest first. */
export function Trail({ rolloutId }: { rolloutId: string }) {
  return <TrailOf query={auditQuery(rolloutId)} />;
}

export function TrailOf({ query }: { query: ReturnType<typeof auditQuery> | ReturnType<typeof subjectAuditQuery> }) {
  const list = useQuery(query as ReturnType<typeof auditQuery>);
  return (
    <Panel title="Audit trail" flush>
      {list.isError ? <LoadError what="The audit trail" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? <Loading rows={3} /> : null}
      {list.data?.items.length === 0 ? <Empty title="Nothing yet" /> : null}
      {list.data && list.data.items.length > 0 ? (
        <ol className={classes.trail} tabIndex={0} aria-label="Audit trail, newest first">
          {list.data.items.map((e) => (
            <li key={e.id} className={classes.entry}>
              <div className={classes.entryHead}><span>{e.actor === "muster" ? sentence(e.text) : closed(e.text)}</span><Ago at={e.at} /></div>
              <div className={classes.note}>{e.actor === "muster" ? "Muster · " : ""}<span className="mono">{e.verb}</span></div>
              {e.why ? <div className={classes.quote}>{e.why}</div> : null}
            </li>
          ))}
        </ol>
      ) : null}
      {list.data && list.data.total > AUDIT_SHOWN ? <div className={classes.foot}>The newest {AUDIT_SHOWN} of {list.data.total.toLocaleString()} entries.</div> : null}
    </Panel>
  );
}
