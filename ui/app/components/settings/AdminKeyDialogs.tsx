/** Create, rotate and revoke admin keys. */
import { Select, Stack, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { createAdminKey, logIn, revokeAdminKey, rotateAdminKey } from "~/api/accessKeys";
import { keys } from "~/api/queries";
import type { AdminKey } from "~/api/types";
import { Dialog } from "~/components/base/Dialog";
import { SecretDialog } from "~/components/base/SecretDialog";
import { useChange } from "~/hooks/useChange";
import { ADMIN_LIFETIMES, GRACES } from "~/util/enroll/keyState";

const STALE = [keys.adminKeys, keys.trails];

export function CreateAdminKeyDialog({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [lifetime, setLifetime] = useState("2160h");
  const create = useChange({ run: (why: string) => createAdminKey(name.trim(), lifetime, why), stale: STALE });
  if (create.data?.api_key) {
    return (
      <SecretDialog title={`Admin key of ${create.data.name}`} label="Admin key" secret={create.data.api_key} onClose={onClose}>
        <p>
          Give it to whoever it is for. It is pasted on the login page, or given to <span className="mono">muster login</span>.
        </p>
      </SecretDialog>
    );
  }
  return (
    <Dialog
      title="Create an admin key?"
      confirm="Create key"
      why="optional"
      reason={name.trim() === "" ? "Name the person or program that uses the key first." : null}
      busy={create.isPending}
      error={create.error}
      onConfirm={(why) => create.mutate(why)}
      onClose={onClose}
    >
      <Stack gap="sm">
        <TextInput
          label="Name"
          description="Of the person or program. It stands beside everything that is done with the key."
          data-autofocus
          maxLength={100}
          value={name}
          onChange={(e) => setName(e.currentTarget.value)}
        />
        <Select label="Gives access for" allowDeselect={false} data={ADMIN_LIFETIMES} value={lifetime} onChange={(v) => setLifetime(v ?? "")} />
      </Stack>
    </Dialog>
  );
}

interface OneKey {
  adminKey: AdminKey;
  /** Whether this session is one of the key. */
  mine: boolean;
  onClose: () => void;
}

/** Whoever rotates the key of this session stays logged in: the old key lasts until the new one has logged in, at most a minute. */
const SWITCH = "1m";

export function RotateAdminKeyDialog({ adminKey: k, mine, onClose }: OneKey) {
  const client = useQueryClient();
  const [grace, setGrace] = useState("");
  const rotate = useChange({
    run: async (why: string) => {
      const created = await rotateAdminKey(k.id, grace || (mine ? SWITCH : ""), why);
      if (!mine) return created;
      try {
        client.setQueryData(keys.session, await logIn(created.api_key!));
        if (grace === "") await revokeAdminKey(k.id, why);
      } catch {
        // The secret is shown all the same. The session ends with the old key.
      }
      return created;
    },
    stale: STALE,
  });
  if (rotate.data?.api_key) {
    return (
      <SecretDialog title={`New admin key of ${k.name}`} label="Admin key" secret={rotate.data.api_key} onClose={onClose}>
        {mine ? <p>You stay logged in with it.</p> : null}
      </SecretDialog>
    );
  }
  return (
    <Dialog
      title={`Rotate ${k.name}?`}
      confirm="Rotate key"
      why="optional"
      busy={rotate.isPending}
      error={rotate.error}
      onConfirm={(why) => rotate.mutate(why)}
      onClose={onClose}
    >
      <Stack gap="sm">
        <span>A new key with the same name replaces this one, for as long as this one was to last.</span>
        <Select label="The old key stays usable for" allowDeselect={false} data={GRACES} value={grace} onChange={(v) => setGrace(v ?? "")} />
      </Stack>
    </Dialog>
  );
}

export function RevokeAdminKeyDialog({ adminKey: k, mine, onClose }: OneKey) {
  const revoke = useChange({ run: (why: string) => revokeAdminKey(k.id, why), done: `The key ${k.name} is revoked`, stale: STALE, after: onClose });
  return (
    <Dialog
      title={`Revoke ${k.name}?`}
      confirm="Revoke key"
      danger
      typed={k.name}
      why="optional"
      busy={revoke.isPending}
      error={revoke.error}
      onConfirm={(why) => revoke.mutate(why)}
      onClose={onClose}
    >
      <p>Nobody can use it any more, and its sessions end{mine ? ", yours too" : ""}. A revoked key cannot be used again: create a new one instead.</p>
    </Dialog>
  );
}
