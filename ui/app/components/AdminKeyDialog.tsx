import { Button, Group, Modal, Select, Stack, Text, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { IconKey } from "@tabler/icons-react";
import { useState } from "react";
import { call, messageOf } from "~/api/client";
import { keys } from "~/api/queries";
import type { AdminKey } from "~/api/types";
import { useReturnFocus } from "~/hooks/useReturnFocus";
import { Callout } from "./Callout";
import { CopyBlock } from "./CopyBlock";
import { ReasonButton } from "./ReasonButton";

/** How long a new key gives access. It ends, so that a forgotten key does not stay valid. */
const LIFETIMES = [
  { value: "720h", label: "30 days" },
  { value: "2160h", label: "90 days" },
  { value: "8760h", label: "1 year" },
  { value: "", label: "Until it is revoked" },
];

const GRACES = [
  { value: "", label: "Not at all" },
  { value: "1h", label: "1 hour" },
  { value: "24h", label: "1 day" },
  { value: "168h", label: "1 week" },
];

/** Whoever rotates the key of this session stays logged in: the old key lasts until the new one has logged in, at most a minute. */
const SWITCH = "1m";

interface Props {
  /** The key to rotate; without it, another key is created. */
  rotated?: AdminKey;
  /** Whether this session is one of the rotated key. */
  mine?: boolean;
  onClose: () => void;
}

/** Creates or rotates an admin key, and shows the secret. */
export function AdminKeyDialog({ rotated, mine, onClose }: Props) {
  useReturnFocus();
  const client = useQueryClient();
  const [name, setName] = useState("");
  const [lifetime, setLifetime] = useState("2160h");
  const [grace, setGrace] = useState("");

  const create = useMutation({
    mutationFn: async () => {
      if (!rotated) return call("post", "/api/v1/admin_keys", { body: { name: name.trim(), expiration: lifetime || undefined } });
      const path = { keyId: rotated.id };
      const created = await call("post", "/api/v1/admin_keys/{keyId}/rotate", { path, body: { grace: grace || (mine ? SWITCH : undefined) } });
      if (!mine) return created;
      try {
        client.setQueryData(keys.session, await call("post", "/api/v1/session", { body: { api_key: created.item.api_key! } }));
        if (grace === "") await call("delete", "/api/v1/admin_keys/{keyId}", { path });
      } catch {
        // The secret is shown all the same. The session ends with the old key.
      }
      return created;
    },
    onSuccess: () => void client.invalidateQueries({ queryKey: keys.adminKeys }),
  });
  const secret = create.data?.item.api_key;
  const why = !rotated && name.trim() === "" ? "Name the person or program that uses the key first." : null;

  return (
    <Modal
      opened
      onClose={onClose}
      size="lg"
      closeOnClickOutside={!secret}
      title={<Text fw={600} size="lg">{rotated ? `Rotate ${rotated.name}?` : "Create an admin key"}</Text>}
      closeButtonProps={{ "aria-label": "Close" }}
    >
      {secret ? (
        <Stack>
          <CopyBlock text={secret} label="Admin key" />
          <Text size="sm" c="dimmed">The key is shown only now: the server stores no copy.{mine ? " You stay logged in with it." : null}</Text>
          <Group justify="flex-end"><Button onClick={onClose}>Done</Button></Group>
        </Stack>
      ) : (
        <form
          onSubmit={(e) => {
            e.preventDefault();
            if (!why) create.mutate();
          }}
        >
          <Stack>
            {rotated ? (
              <>
                <Text size="sm">A new key with the same name replaces this one, for as long as this one was to last.</Text>
                <Select label="The old key stays usable for" data-autofocus allowDeselect={false} data={GRACES} value={grace} onChange={(v) => setGrace(v ?? "")} />
              </>
            ) : (
              <Group grow align="flex-start">
                <TextInput label="Name" description="Of the person or program" data-autofocus maxLength={100} value={name} onChange={(e) => setName(e.currentTarget.value)} />
                <Select label="Gives access for" description="It can be revoked earlier" allowDeselect={false} data={LIFETIMES} value={lifetime} onChange={(v) => setLifetime(v ?? "")} />
              </Group>
            )}
            {create.isError ? <Callout kind="error" title={rotated ? "The key was not rotated" : "The key was not created"}>{messageOf(create.error)}</Callout> : null}
            <Group justify="flex-end">
              <Button variant="default" onClick={onClose}>Cancel</Button>
              <ReasonButton type="submit" leftSection={<IconKey size={16} aria-hidden />} loading={create.isPending} reason={why}>{rotated ? "Rotate key" : "Create key"}</ReasonButton>
            </Group>
          </Stack>
        </form>
      )}
    </Modal>
  );
}
