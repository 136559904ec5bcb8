import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { createFleet } from "~/api/fleets";
import { keys } from "~/api/queries";
import type { Fleet } from "~/api/types";
import { Facts, PageHead, Section } from "~/components/base/Page";
import { toast } from "~/components/base/Toasts";
import { FleetEditor } from "~/components/fleet/FleetEditor";
import { useNewestVersion } from "~/hooks/useAgents";
import { fleetExample } from "~/util/fleet/fleetExample";

export function NewFleetPage() {
  const newest = useNewestVersion();
  const example = useMemo(() => fleetExample(newest), [newest]);
  const client = useQueryClient();
  const navigate = useNavigate();
  const onSaved = (created: Fleet) => {
    toast({ kind: "done", title: `${created.metadata.name} is created` });
    void client.invalidateQueries({ queryKey: keys.fleets });
    void navigate({ to: "/fleets/$name", params: { name: created.metadata.name } });
  };
  return (
    <>
      <PageHead
        title="Create fleet"
        crumbs={[{ label: "Fleets", to: "/fleets" }]}
        docs="fleets"
        sub="Say which hosts run which versions, and review what would happen. Creating the fleet starts its first rollout."
      />
      <FleetEditor text={example} save={createFleet} onSaved={onSaved} onCancel={() => void navigate({ to: "/fleets" })}>
        <Section title="What a change does" plain>
          <Facts
            rows={[
              ["Starts a rollout", "selector, agent, components, configuration, strategy"],
              ["Takes effect at once", "limits, failure, health, pace, paused, forcePromote"],
              ["While promoting", "A rollout that is past its canaries and their approval is not disturbed: the next one waits for its end"],
              ["Same file again", "Nothing is written and nothing starts"],
            ]}
          />
        </Section>
      </FleetEditor>
    </>
  );
}
