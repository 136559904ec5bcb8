/** Asks the selected hosts for their diagnostics. */
import { Checkbox, Stack } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { orderCountQuery, requestDiagnostics } from "~/api/bulk";
import { Dialog } from "~/components/base/Dialog";
import { type Chosen, countOf, typedFor } from "~/util/agents/chosen";
import { plural } from "~/util/words";
import { useOrdered } from "./useOrdered";

interface Props {
  chosen: Chosen;
  onClose: () => void;
  onDone?: () => void;
}

export function DiagnosticsDialog({ chosen, onClose, onDone }: Props) {
  const ordered = useOrdered(onClose, onDone);
  const [cpu, setCpu] = useState(false);
  const [withoutEvents, setWithoutEvents] = useState(false);
  const counted = useQuery(orderCountQuery("diagnostics", chosen));
  const hosts = plural(counted.data?.count ?? countOf(chosen), "host");
  const ask = useMutation({
    mutationFn: () => requestDiagnostics(chosen, { cpu, withoutEvents }),
    onSuccess: (id) => ordered(`Asked ${hosts} for diagnostics`, id),
  });
  const reason = counted.isError
    ? "The hosts could not be counted."
    : counted.data === undefined
      ? "The server counts the hosts."
      : counted.data.count === 0
        ? "No host is left."
        : null;
  return (
    <Dialog
      title={`Request diagnostics of ${hosts}?`}
      confirm={`Request diagnostics of ${hosts}`}
      typed={counted.data ? typedFor("request", counted.data.count) : undefined}
      reason={reason}
      busy={ask.isPending}
      error={ask.error ?? counted.error}
      onConfirm={() => ask.mutate()}
      onClose={onClose}
    >
      <Stack gap="sm">
        <span>
          Each host collects its logs, configuration and state, and sends them to this server, which keeps them for 90 days. Download them on the page of the
          host.
        </span>
        <Checkbox checked={cpu} onChange={(e) => setCpu(e.currentTarget.checked)} label="Include a CPU profile" description="Takes 30 seconds on each host." />
        <Checkbox
          checked={withoutEvents}
          onChange={(e) => setWithoutEvents(e.currentTarget.checked)}
          label="Leave out the log of events"
          description="It can contain data of your systems."
        />
      </Stack>
    </Dialog>
  );
}
