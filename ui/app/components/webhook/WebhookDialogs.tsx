/** Add and remove webhooks. */
import { Checkbox, Stack, TextInput } from "@mantine/core";
import { useState } from "react";
import { keys } from "~/api/queries";
import type { Webhook } from "~/api/types";
import { createWebhook, deleteWebhook } from "~/api/webhooks";
import { Dialog } from "~/components/base/Dialog";
import { SecretDialog } from "~/components/base/SecretDialog";
import { useChange } from "~/hooks/useChange";
import { eventWord, WEBHOOK_EVENTS, whyNotWebhook } from "~/util/webhook/webhook";
import classes from "./Webhook.module.css";

export function CreateWebhookDialog({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [url, setUrl] = useState("");
  const [secret, setSecret] = useState("");
  const [events, setEvents] = useState<string[]>([]);
  const create = useChange({
    run: (why: string) => createWebhook({ name: name.trim(), url: url.trim(), events, secret: secret.trim() }, why),
    stale: [keys.webhooks, keys.trails],
  });
  if (create.data?.secret) {
    return (
      <SecretDialog title={`Secret of ${create.data.name}`} label="Secret of the webhook" secret={create.data.secret} onClose={onClose}>
        <p>The receiver verifies each delivery with it, as described by Standard Webhooks. Then send a test.</p>
      </SecretDialog>
    );
  }
  return (
    <Dialog
      title="Add a webhook?"
      confirm="Add webhook"
      size="lg"
      why="optional"
      reason={whyNotWebhook(name, url)}
      busy={create.isPending}
      error={create.error}
      onConfirm={(why) => create.mutate(why)}
      onClose={onClose}
    >
      <Stack gap="sm">
        <TextInput label="Name" placeholder="chat" data-autofocus value={name} onChange={(e) => setName(e.currentTarget.value)} />
        <TextInput
          label="URL of the receiver"
          placeholder="https://hooks.example.com/muster"
          type="url"
          value={url}
          onChange={(e) => setUrl(e.currentTarget.value)}
        />
        <TextInput
          label="Secret (optional)"
          description="One that the receiver has already. Without it the server makes one, and shows it once."
          autoComplete="off"
          spellCheck={false}
          value={secret}
          onChange={(e) => setSecret(e.currentTarget.value)}
        />
        <Checkbox.Group
          label="Only these events (optional)"
          description="Without a choice: all except progress, which comes often"
          value={events}
          onChange={setEvents}
        >
          <div className={classes.events}>
            {WEBHOOK_EVENTS.map((g) => (
              <fieldset key={g.group} className={classes.group}>
                <legend>{g.group}</legend>
                {g.events.map((e) => (
                  <Checkbox key={e} value={e} label={eventWord(e)} />
                ))}
              </fieldset>
            ))}
          </div>
        </Checkbox.Group>
      </Stack>
    </Dialog>
  );
}

export function DeleteWebhookDialog({ hook: h, onClose }: { hook: Webhook; onClose: () => void }) {
  const remove = useChange({
    run: (why: string) => deleteWebhook(h.id, why),
    done: `The webhook ${h.name} is removed`,
    stale: [keys.webhooks, keys.deadLetters, keys.trails],
    after: onClose,
  });
  return (
    <Dialog
      title={`Remove the webhook ${h.name}?`}
      confirm="Remove webhook"
      danger
      typed={h.name}
      why="optional"
      busy={remove.isPending}
      error={remove.error}
      onConfirm={(why) => remove.mutate(why)}
      onClose={onClose}
    >
      <p>
        <span className="mono">{h.url}</span> gets no more events. To stop it for a while, disable it instead.
      </p>
    </Dialog>
  );
}
