import { Button, Group, Modal, Select, Stack, Text, TextInput } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { IconKey } from "@tabler/icons-react";
import { useState } from "react";
import { call, messageOf } from "~/api/client";
import { keys, policiesQuery, serverQuery } from "~/api/queries";
import type { EnrollmentKey, Server } from "~/api/types";
import { useReturnFocus } from "~/hooks/useReturnFocus";
import { enrollCommand } from "~/util/enroll";
import { Callout } from "./Callout";
import { CopyBlock } from "./CopyBlock";
import { ReasonButton } from "./ReasonButton";

/** How long a new key enrols hosts. It ends, so that a forgotten key does not stay valid. */
const LIFETIMES = [
  { value: "1h", label: "1 hour" },
  { value: "24h", label: "1 day" },
  { value: "168h", label: "1 week" },
  { value: "", label: "Until it is revoked" },
];

export function AddAgentDialog({ onClose }: { onClose: () => void }) {
  useReturnFocus();
  const client = useQueryClient();
  const server = useQuery(serverQuery);
  const policies = useQuery(policiesQuery);
  const [picked, setPicked] = useState<string | null>(null);
  const [name, setName] = useState("");
  const [lifetime, setLifetime] = useState("24h");
  const policy = picked ?? policies.data?.[0]?.id ?? null;

  const create = useMutation({
    mutationFn: () =>
      call("post", "/api/fleet/enrollment_api_keys", {
        body: { policy_id: policy!, name: name.trim() || undefined, expiration: lifetime || undefined },
      }),
    onSuccess: () => void client.invalidateQueries({ queryKey: keys.enrollmentKeys }),
  });
  const secret = create.data?.item.api_key;
  const readError = server.error ?? policies.error;
  const why = readError ? "The server did not answer."
    : policies.isSuccess && !policy ? "There is no policy yet."
    : !policy || !server.data ? "Loading…" : null;

  return (
    <Modal opened onClose={onClose} size="lg" title={<Text fw={600} size="lg">Add an agent</Text>} closeButtonProps={{ "aria-label": "Close" }}>
      <Stack>
        {readError ? <Callout kind="error">{messageOf(readError)}</Callout> : null}
        {secret && server.data ? (
          <EnrollInstructions server={server.data} token={secret} onClose={onClose} />
        ) : (
          <form
            onSubmit={(e) => {
              e.preventDefault();
              if (!why) create.mutate();
            }}
          >
            <Stack>
              <Text size="sm" c="dimmed">A host enrols with a key. The key determines its policy and can be revoked at any time.</Text>
              <Select
                label="Policy"
                data-autofocus
                allowDeselect={false}
                data={policies.data?.map((p) => ({ value: p.id, label: p.name })) ?? []}
                value={policy}
                onChange={setPicked}
              />
              <Group grow align="flex-start">
                <TextInput label="Name of the key" description="To recognise the key later" value={name} onChange={(e) => setName(e.currentTarget.value)} />
                <Select label="Enrols hosts for" description="Enrolled agents stay afterwards" allowDeselect={false} data={LIFETIMES} value={lifetime} onChange={(v) => setLifetime(v ?? "")} />
              </Group>
              {create.isError ? <Callout kind="error" title="The key was not created">{messageOf(create.error)}</Callout> : null}
              <Group justify="flex-end">
                <Button variant="default" onClick={onClose}>Close</Button>
                <ReasonButton type="submit" leftSection={<IconKey size={16} aria-hidden />} loading={create.isPending} reason={why}>Create key and show command</ReasonButton>
              </Group>
            </Stack>
          </form>
        )}
      </Stack>
    </Modal>
  );
}

/** Shows again the command of a key whose token the server can read. */
export function EnrollCommandDialog({ enrollmentKey, token, onClose }: { enrollmentKey: EnrollmentKey; token: string; onClose: () => void }) {
  useReturnFocus();
  const server = useQuery(serverQuery);
  return (
    <Modal opened onClose={onClose} size="lg" title={<Text fw={600} size="lg">Enrol hosts with {enrollmentKey.name || enrollmentKey.id}</Text>} closeButtonProps={{ "aria-label": "Close" }}>
      <Stack>
        {server.isError ? <Callout kind="error">{messageOf(server.error)}</Callout> : null}
        {server.isPending ? <Text size="sm" c="dimmed">Loading…</Text> : null}
        {server.data ? <EnrollInstructions server={server.data} token={token} onClose={onClose} /> : null}
      </Stack>
    </Modal>
  );
}

function EnrollInstructions({ server, token, onClose }: { server: Server; token: string; onClose: () => void }) {
  return (
    <>
      <Text size="sm">On each host, unpack an agent package and run this in its folder. The host appears in the list within seconds.</Text>
      <CopyBlock text={enrollCommand(server, token)} label="Command that enrols a host" />
      {server.publisher_keys.length === 0 && !server.trust_root ? (
        <Callout kind="warning" title="These agents will refuse every upgrade">
          The server has no publisher key, so the command names none to trust. Add one under Packages before you run the command; it is then part of the command under Enrollment, or of that of a new key.
        </Callout>
      ) : null}
      <Text size="xs" c="dimmed">
        Whoever has the token can enrol hosts. Revoke it under Enrollment once the hosts have enrolled.
        With <span className="mono">--ca-pin</span> an agent talks to no other server; with <span className="mono">--trust-root</span> or <span className="mono">--trust-key</span> it installs only packages signed by the publishers.
      </Text>
      <Group justify="flex-end"><Button onClick={onClose}>Done</Button></Group>
    </>
  );
}
