/** The servers of the installation. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { forgetServer } from "~/api/accessKeys";
import { keys, serversQuery } from "~/api/queries";
import type { KnownServer } from "~/api/types";
import { Badge } from "~/components/base/Badge";
import { CopyBlock } from "~/components/base/CopyBlock";
import { type Column, DataTable } from "~/components/base/DataTable";
import { Dialog } from "~/components/base/Dialog";
import { LoadError, Loading, PageHead, Section } from "~/components/base/Page";
import { RowButton } from "~/components/base/RowButton";
import { SubNav } from "~/components/base/SubNav";
import { Ago, When } from "~/components/base/Time";
import { ServerRemarks } from "~/components/frame/ServerRemarks";
import { useChange } from "~/hooks/useChange";
import { sentence } from "~/util/words";
import classes from "./Admin.module.css";
import { SETTINGS_PAGES } from "./subPages";

export function ServersPage() {
  const list = useQuery(serversQuery);
  const [leaving, setLeaving] = useState<KnownServer | null>(null);
  const columns: Column<KnownServer>[] = [
    {
      id: "host",
      header: "Server",
      cell: (s) => (
        <>
          <strong>{s.host}</strong>
          <div className={classes.sub}>
            <span className="mono">{s.id}</span>
          </div>
        </>
      ),
    },
    {
      id: "state",
      header: "State",
      cell: (s) => (
        <>
          {s.away ? (
            <Badge tone="away">
              Away, seen <Ago at={s.seen_at} />
            </Badge>
          ) : s.problem ? (
            <Badge tone="wait">Running, with a problem</Badge>
          ) : (
            <Badge tone="ok">Running</Badge>
          )}
          {s.problem ? <div className={classes.sub}>{sentence(s.problem)}</div> : null}
        </>
      ),
    },
    { id: "version", header: "Version", nowrap: true, cell: (s) => <span className="mono">{s.version}</span> },
    { id: "parked", header: "Connected hosts", align: "end", nowrap: true, cell: (s) => (s.away ? "–" : s.parked.toLocaleString()) },
    { id: "started", header: "Started", nowrap: true, wide: true, cell: (s) => <When at={s.started_at} /> },
    {
      id: "address",
      header: "Addresses",
      wide: true,
      cell: (s) => (
        <>
          <div className="mono">{s.admin_url}</div>
          <div className={classes.sub}>
            hosts: <span className="mono">{s.agents_url}</span>
          </div>
        </>
      ),
    },
    {
      id: "act",
      header: "Actions",
      quiet: true,
      align: "end",
      nowrap: true,
      cell: (s) =>
        s.away ? (
          <RowButton danger label={`Forget ${s.host}`} onClick={() => setLeaving(s)}>
            Forget…
          </RowButton>
        ) : null,
    },
  ];
  return (
    <>
      <PageHead
        title="Settings"
        name="Servers"
        docs="server"
        sub="The servers of this installation. One that has been silent for 15 seconds is away, and leaves the list after a week."
      />
      <SubNav label="Settings" pages={SETTINGS_PAGES} />
      {list.isError ? <LoadError what="The servers" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? <Loading rows={2} /> : null}
      {list.data ? (
        <div className={classes.stack}>
          <ServerRemarks />
          <DataTable label="Servers" columns={columns} rows={list.data.items} rowId={(s) => s.id} density="comfortable" />
          <Section title="Care for the servers" plain flush>
            <CopyBlock
              label="Commands for servers"
              text={
                "muster status                          # what is wrong, and what to do\nmuster backup muster.backup            # all of the server in one secret file, while it runs\nmuster server upgrade --to VERSION     # all servers, one after the other, with a backup"
              }
            />
          </Section>
        </div>
      ) : null}
      {leaving ? <ForgetDialog server={leaving} onClose={() => setLeaving(null)} /> : null}
    </>
  );
}

function ForgetDialog({ server: s, onClose }: { server: KnownServer; onClose: () => void }) {
  const forget = useChange({
    run: (why: string) => forgetServer(s.id, why),
    done: `The server on ${s.host} is forgotten`,
    stale: [keys.servers, keys.trails],
    after: onClose,
  });
  return (
    <Dialog
      title={`Forget ${s.host}?`}
      confirm="Forget server"
      why="optional"
      busy={forget.isPending}
      error={forget.error}
      onConfirm={(why) => forget.mutate(why)}
      onClose={onClose}
    >
      <p>It leaves the list. If it starts again, it is listed again.</p>
    </Dialog>
  );
}
