/** Create and revoke keys with which hosts enrol. */
import { Select, Stack, TextInput } from "@mantine/core";
import { useState } from "react";
import { createEnrollmentKey, revokeEnrollmentKey } from "~/api/accessKeys";
import { keys } from "~/api/queries";
import type { EnrollmentKey, Policy } from "~/api/types";
import { Dialog } from "~/components/base/Dialog";
import { useChange } from "~/hooks/useChange";
import { keyLabel } from "~/util/enroll/enroll";
import { HOST_LIFETIMES } from "~/util/enroll/keyState";

interface Props {
  policies: readonly Policy[];
  policyId: string;
  onDone: (key: EnrollmentKey) => void;
  onClose: () => void;
}

export function CreateEnrollmentKeyDialog({ policies, policyId, onDone, onClose }: Props) {
  const [policy, setPolicy] = useState(policyId);
  const [name, setName] = useState("");
  const [lifetime, setLifetime] = useState("24h");
  const create = useChange({
    run: (why: string) => createEnrollmentKey(policy, name.trim(), lifetime, why),
    done: "The key is created",
    stale: [keys.enrollmentKeys, keys.trails],
    after: onDone,
  });
  return (
    <Dialog
      title="Create an enrolment key?"
      confirm="Create key"
      why="optional"
      reason={policy === "" ? "Choose a policy first." : null}
      busy={create.isPending}
      error={create.error}
      onConfirm={(why) => create.mutate(why)}
      onClose={onClose}
    >
      <Stack gap="sm">
        <Select
          label="Policy"
          description="Hosts that enrol with the key get it"
          allowDeselect={false}
          data-autofocus
          data={policies.map((p) => ({ value: p.id, label: p.name }))}
          value={policy}
          onChange={(v) => setPolicy(v ?? "")}
        />
        <TextInput label="Name (optional)" description="To recognise the key later" value={name} onChange={(e) => setName(e.currentTarget.value)} />
        <Select
          label="Enrols hosts for"
          description="Enrolled hosts stay afterwards"
          allowDeselect={false}
          data={HOST_LIFETIMES}
          value={lifetime}
          onChange={(v) => setLifetime(v ?? "")}
        />
      </Stack>
    </Dialog>
  );
}

export function RevokeEnrollmentKeyDialog({ enrollmentKey: k, onClose }: { enrollmentKey: EnrollmentKey; onClose: () => void }) {
  const revoke = useChange({
    run: (why: string) => revokeEnrollmentKey(k.id, why),
    done: `The key ${keyLabel(k)} is revoked`,
    stale: [keys.enrollmentKeys, keys.trails],
    after: onClose,
  });
  return (
    <Dialog
      title={`Revoke ${keyLabel(k)}?`}
      confirm="Revoke key"
      danger
      why="optional"
      busy={revoke.isPending}
      error={revoke.error}
      onConfirm={(why) => revoke.mutate(why)}
      onClose={onClose}
    >
      <p>No host can enrol with it any more. Enrolled hosts stay. A revoked key cannot be used again: create a new one instead.</p>
    </Dialog>
  );
}
