/** Create, copy and delete a policy. */
import { Stack, Textarea, TextInput } from "@mantine/core";
import { useState } from "react";
import { copyPolicy, createPolicy, deletePolicy } from "~/api/policies";
import { keys } from "~/api/queries";
import type { Policy } from "~/api/types";
import { Dialog } from "~/components/base/Dialog";
import { useChange } from "~/hooks/useChange";
import { plural } from "~/util/words";

const NAMELESS = "Enter a name first.";

export function CreatePolicyDialog({ onDone, onClose }: { onDone: (p: Policy) => void; onClose: () => void }) {
  const [name, setName] = useState("");
  const [description, setDescription] = useState("");
  const create = useChange({
    run: (why: string) => createPolicy(name.trim(), description.trim(), why),
    done: `The policy ${name.trim()} is created`,
    stale: [keys.policies, keys.trails],
    after: onDone,
  });
  return (
    <Dialog
      title="Create a policy?"
      confirm="Create policy"
      why="optional"
      reason={name.trim() === "" ? NAMELESS : null}
      busy={create.isPending}
      error={create.error}
      onConfirm={(why) => create.mutate(why)}
      onClose={onClose}
    >
      <Stack gap="sm">
        <span>It has no components yet; its page adds them. Hosts enrol into it with a key of its own.</span>
        <TextInput label="Name" data-autofocus value={name} onChange={(e) => setName(e.currentTarget.value)} />
        <Textarea label="Description (optional)" autosize minRows={2} value={description} onChange={(e) => setDescription(e.currentTarget.value)} />
      </Stack>
    </Dialog>
  );
}

export function CopyPolicyDialog({ policy: p, onDone, onClose }: { policy: Policy; onDone: (p: Policy) => void; onClose: () => void }) {
  const [name, setName] = useState(`${p.name} (copy)`);
  const copy = useChange({
    run: (why: string) => copyPolicy(p.id, name.trim(), why),
    done: `${p.name} is copied to ${name.trim()}`,
    stale: [keys.policies, keys.trails],
    after: onDone,
  });
  return (
    <Dialog
      title={`Copy ${p.name}?`}
      confirm="Copy policy"
      why="optional"
      reason={name.trim() === "" ? NAMELESS : null}
      busy={copy.isPending}
      error={copy.error}
      onConfirm={(why) => copy.mutate(why)}
      onClose={onClose}
    >
      <Stack gap="sm">
        <span>The copy has its settings and components, but no hosts and no required versions.</span>
        <TextInput label="Name of the copy" data-autofocus value={name} onChange={(e) => setName(e.currentTarget.value)} />
      </Stack>
    </Dialog>
  );
}

export function DeletePolicyDialog({ policy: p, onDone, onClose }: { policy: Policy; onDone: () => void; onClose: () => void }) {
  const remove = useChange({
    run: (why: string) => deletePolicy(p.id, p.is_managed, why),
    done: `The policy ${p.name} is deleted`,
    stale: [keys.policies, keys.enrollmentKeys, keys.trails],
    after: onDone,
  });
  // A dialog that can only refuse asks for nothing.
  const asks = p.agents > 0 ? { reason: `It has ${plural(p.agents, "host")}.` } : { typed: p.name, why: "optional" as const };
  return (
    <Dialog
      title={`Delete ${p.name}?`}
      confirm="Delete policy"
      danger
      {...asks}
      busy={remove.isPending}
      error={remove.error}
      onConfirm={(why) => remove.mutate(why)}
      onClose={onClose}
    >
      {p.agents > 0 ? (
        <p>The server keeps a policy that has hosts, and this one has {plural(p.agents, "host")}. Reassign them first.</p>
      ) : (
        <p>It has no hosts. Its enrolment keys are revoked with it. The audit trail keeps its revisions.</p>
      )}
    </Dialog>
  );
}
