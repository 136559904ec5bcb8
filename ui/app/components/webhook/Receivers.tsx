/** The receivers of events. */

import { IconWebhook } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { messageOf } from "~/api/client";
import { keys } from "~/api/queries";
import type { Webhook } from "~/api/types";
import { enableWebhook, testWebhook, webhooksQuery } from "~/api/webhooks";
import { Badge } from "~/components/base/Badge";
import { Callout } from "~/components/base/Callout";
import { CopyBlock } from "~/components/base/CopyBlock";
import { type Column, DataTable } from "~/components/base/DataTable";
import { Empty, LoadError, Loading } from "~/components/base/Page";
import { RowButton } from "~/components/base/RowButton";
import { When } from "~/components/base/Time";
import { useChange } from "~/hooks/useChange";
import classes from "~/pages/Admin.module.css";
import { eventsText } from "~/util/webhook/webhook";
import { sentence } from "~/util/words";
import { DeleteWebhookDialog } from "./WebhookDialogs";

export function Receivers() {
  const list = useQuery(webhooksQuery);
  const [removing, setRemoving] = useState<Webhook | null>(null);
  const ping = useChange({ run: (h: Webhook) => testWebhook(h.id).then(() => h), done: (h: Webhook) => `${h.name} accepted the test`, stale: [] });
  const toggle = useChange({
    run: (h: Webhook) => enableWebhook(h.id, h.disabled ?? false).then(() => h),
    done: (h: Webhook) => `${h.name} is ${h.disabled ? "enabled" : "disabled"}`,
    stale: [keys.webhooks, keys.trails],
  });
  const failed = ping.isError
    ? { title: `${ping.variables.name} did not accept the test`, error: ping.error }
    : toggle.isError
      ? { title: `${toggle.variables.name} was not changed`, error: toggle.error }
      : null;
  const columns: Column<Webhook>[] = [
    { id: "name", header: "Webhook", nowrap: true, cell: (h) => <strong>{h.name}</strong> },
    { id: "url", header: "Receiver", width: "32%", wide: true, cell: (h) => <span className="mono">{h.url}</span> },
    { id: "state", header: "State", nowrap: true, cell: (h) => <Badge tone={h.disabled ? "away" : "ok"}>{h.disabled ? "Disabled" : "Enabled"}</Badge> },
    { id: "events", header: "Events", wide: true, cell: (h) => <span title={h.events?.join(", ")}>{eventsText(h)}</span> },
    {
      id: "created",
      header: "Created",
      nowrap: true,
      wide: true,
      cell: (h) => (
        <>
          <When at={h.created_at} /> <span className={classes.muted}>by {h.created_by}</span>
        </>
      ),
    },
    {
      id: "act",
      header: "Actions",
      quiet: true,
      align: "end",
      nowrap: true,
      cell: (h) => (
        <span className={classes.actions}>
          <RowButton busy={ping.isPending && ping.variables?.id === h.id} label={`Send a test to ${h.name}`} onClick={() => ping.mutate(h)}>
            Send test
          </RowButton>
          <RowButton
            busy={toggle.isPending && toggle.variables?.id === h.id}
            label={`${h.disabled ? "Enable" : "Disable"} ${h.name}`}
            onClick={() => toggle.mutate(h)}
          >
            {h.disabled ? "Enable" : "Disable"}
          </RowButton>
          <RowButton danger label={`Remove ${h.name}`} onClick={() => setRemoving(h)}>
            Remove…
          </RowButton>
        </span>
      ),
    },
  ];
  return (
    <div className={classes.tight}>
      {list.isError ? <LoadError what="The webhooks" error={list.error} onRetry={() => void list.refetch()} /> : null}
      {list.isPending ? <Loading rows={3} /> : null}
      {list.data?.length === 0 ? (
        <Empty icon={<IconWebhook size={32} stroke={1.5} aria-hidden />} title="No webhook is configured">
          <p>A webhook sends events of rollouts and incidents to a chat, a pager or a pipeline.</p>
          <CopyBlock
            label="Command that adds a webhook"
            text="muster webhooks add chat https://hooks.example.com/muster --event rollout.paused --event incident.changed"
          />
        </Empty>
      ) : null}
      {failed ? (
        <Callout kind="error" title={failed.title}>
          {sentence(messageOf(failed.error))}
        </Callout>
      ) : null}
      {list.data && list.data.length > 0 ? <DataTable label="Webhooks" columns={columns} rows={list.data} rowId={(h) => h.id} /> : null}
      {removing ? <DeleteWebhookDialog hook={removing} onClose={() => setRemoving(null)} /> : null}
    </div>
  );
}
