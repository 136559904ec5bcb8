/** Gives the selected hosts another policy. */
import { Select } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { orderCountQuery, reassign } from "~/api/bulk";
import { policiesQuery } from "~/api/queries";
import { Dialog } from "~/components/base/Dialog";
import { type Chosen, countOf, typedFor } from "~/util/agents/chosen";
import { isOverLimit, overLimitOf } from "~/util/agents/removalLimit";
import { plural } from "~/util/words";
import { OrderWarnings } from "./OrderWarnings";
import { useOrdered } from "./useOrdered";

interface Props {
  chosen: Chosen;
  onClose: () => void;
  onDone?: () => void;
}

export function ReassignDialog({ chosen, onClose, onDone }: Props) {
  const ordered = useOrdered(onClose, onDone);
  const policies = useQuery(policiesQuery);
  const [policy, setPolicy] = useState<string | null>(null);
  const counted = useQuery(orderCountQuery("policy", chosen, policy ?? undefined));
  const name = policies.data?.find((p) => p.id === policy)?.name ?? policy;
  const count = counted.data?.count ?? countOf(chosen);
  const hosts = plural(count, "host");
  const save = useMutation({
    mutationFn: (why: string) => reassign(chosen, policy!, overLimitOf(why)),
    onSuccess: (id) => ordered(`${hosts} ${count === 1 ? "gets" : "get"} the policy ${name}`, id),
  });
  const reason = !policy
    ? "Choose a policy first."
    : counted.isError
      ? "The hosts could not be counted."
      : counted.data === undefined
        ? "The server counts the hosts."
        : counted.data.count === 0
          ? "No host is left."
          : null;
  return (
    <Dialog
      title={`Give ${hosts} another policy?`}
      confirm={`Reassign ${hosts}`}
      typed={counted.data ? typedFor("reassign", counted.data.count) : undefined}
      reason={reason}
      busy={save.isPending}
      why={isOverLimit(save.error) ? "required" : undefined}
      error={save.error ?? counted.error ?? policies.error}
      onConfirm={(why) => save.mutate(why)}
      onClose={onClose}
    >
      <Select
        label="Policy"
        data-autofocus
        searchable
        openOnFocus={false}
        placeholder={policies.isPending ? "Reading the policies" : "Choose a policy"}
        data={policies.data?.map((p) => ({ value: p.id, label: `${p.name} (${plural(p.agents ?? 0, "host")})` })) ?? []}
        value={policy}
        onChange={setPolicy}
      />
      <p>Each host gets its settings and components at its next check-in. Components that the new policy lacks are stopped.</p>
      <OrderWarnings of={counted.data} />
    </Dialog>
  );
}
