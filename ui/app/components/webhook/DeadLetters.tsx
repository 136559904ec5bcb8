/** What could not be delivered, and can be sent again. */
import { useQuery } from "@tanstack/react-query";
import { messageOf } from "~/api/client";
import { keys } from "~/api/queries";
import type { DeadLetter } from "~/api/types";
import { deadLettersQuery, LETTERS_PER_PAGE, redeliver, webhooksQuery } from "~/api/webhooks";
import { Callout } from "~/components/base/Callout";
import { type Column, DataTable } from "~/components/base/DataTable";
import { LoadError, Loading, Section } from "~/components/base/Page";
import { Pager } from "~/components/base/Pager";
import { RowButton } from "~/components/base/RowButton";
import { When } from "~/components/base/Time";
import { useChange } from "~/hooks/useChange";
import classes from "~/pages/Admin.module.css";
import { letterText } from "~/util/webhook/webhook";
import { sentence } from "~/util/words";
import local from "./Webhook.module.css";

export function DeadLetters({ page, onPage }: { page: number; onPage: (page: number) => void }) {
  const list = useQuery(deadLettersQuery(page));
  const hooks = useQuery(webhooksQuery);
  const again = useChange({ run: (l: DeadLetter) => redeliver(l.id), done: "The receiver accepted it", stale: [keys.deadLetters, keys.trails] });
  const columns: Column<DeadLetter>[] = [
    { id: "when", header: "When", nowrap: true, cell: (l) => <When at={l.at} /> },
    {
      id: "hook",
      header: "Webhook",
      nowrap: true,
      wide: true,
      cell: (l) => hooks.data?.find((h) => h.id === l.webhook_id)?.name ?? <span className={classes.muted}>removed</span>,
    },
    {
      id: "event",
      header: "Event",
      cell: (l) => (
        <>
          {letterText(l)}
          <div className={classes.sub}>
            <span className="mono">{l.type}</span>
          </div>
        </>
      ),
    },
    { id: "error", header: "Why it was not delivered", width: "36%", wide: true, cell: (l) => sentence(l.error) },
    { id: "attempts", header: "Attempts", align: "end", wide: true, cell: (l) => l.attempts.toLocaleString() },
    {
      id: "act",
      header: "Actions",
      quiet: true,
      align: "end",
      nowrap: true,
      cell: (l) => (
        <RowButton busy={again.isPending && again.variables?.id === l.id} label={`Deliver again: ${letterText(l)}`} onClick={() => again.mutate(l)}>
          Deliver again
        </RowButton>
      ),
    },
  ];
  return (
    <Section title="Dead letters" plain flush>
      <div className={classes.tight}>
        <p className={classes.note}>The server tries a failed delivery again for a while. What still fails is kept here.</p>
        {list.isError ? <LoadError what="The dead letters" error={list.error} onRetry={() => void list.refetch()} /> : null}
        {list.isPending ? <Loading rows={3} /> : null}
        {again.isError ? (
          <Callout kind="error" title="It was not delivered again">
            {sentence(messageOf(again.error))}
          </Callout>
        ) : null}
        {list.data?.total === 0 ? <p className={classes.note}>There is none: everything was delivered.</p> : null}
        {list.data && list.data.total > 0 ? (
          <div>
            <DataTable
              label="Dead letters"
              columns={columns}
              rows={list.data.items}
              rowId={(l) => l.id}
              rowName={letterText}
              density="comfortable"
              busy={list.isPlaceholderData}
              expanded={(l) => (
                <pre className={local.body} tabIndex={0} role="group" aria-label="What was sent">
                  {JSON.stringify(l.body, null, 2)}
                </pre>
              )}
            />
            <Pager page={page} perPage={LETTERS_PER_PAGE} total={list.data.total} of="dead letters" onPage={onPage} />
          </div>
        ) : null}
      </div>
    </Section>
  );
}
