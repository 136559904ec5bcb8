import { useQuery } from "@tanstack/react-query";
import { AUDIT_SHOWN, subjectAuditQuery } from "~/api/queries";
import { closed, sentence } from "~/util/words";
import { Empty, LoadError, Loading, Section } from "../base/Page";
import { When } from "../base/Time";
import classes from "./Group.module.css";

/** Who did what with a group, and why, newest first. */
export function GroupTrail({ groupId }: { groupId: string }) {
  const list = useQuery(subjectAuditQuery(groupId));
  const items = list.data?.items ?? [];
  return (
    <Section title="Who did what" plain>
      {list.isError ? <LoadError what="The audit trail" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? <Loading rows={3} /> : null}
      {list.data && items.length === 0 ? <Empty title="Nothing yet" /> : null}
      <ol className={classes.trail}>
        {items.map((e) => (
          <li key={e.id}>
            <div className={classes.trailHead}>
              <span>{e.actor === "muster" ? sentence(e.text) : closed(e.text)}</span>
              <When at={e.at} />
            </div>
            {e.why ? <div className={classes.quote}>{e.why}</div> : null}
          </li>
        ))}
      </ol>
      {list.data && list.data.total > AUDIT_SHOWN ? (
        <div className={classes.sub}>
          The newest {AUDIT_SHOWN} of {list.data.total.toLocaleString()} entries.
        </div>
      ) : null}
    </Section>
  );
}
