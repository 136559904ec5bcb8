/** Waits for the first host, and shows when it has arrived. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { arrivalsQuery } from "~/api/accessKeys";
import { serverQuery } from "~/api/queries";
import { Badge } from "~/components/base/Badge";
import { TextLink } from "~/components/base/TextLink";
import { Ago } from "~/components/base/Time";
import { hostOf } from "~/util/agents/facts";
import { plural } from "~/util/words";
import classes from "./Enroll.module.css";

export function Arrivals({ policyId }: { policyId: string }) {
  // The server's time when the page was opened: enrolments have times of its clock.
  const { data: server } = useQuery(serverQuery);
  const [first, setFirst] = useState("");
  if (first === "" && server?.now) setFirst(server.now);
  const arrived = useQuery(arrivalsQuery(policyId, first));
  const items = arrived.data?.items ?? [];
  const total = arrived.data?.total ?? 0;
  return (
    <div className={classes.arrivals} role="status" aria-live="polite">
      {total === 0 ? (
        <Badge tone="move">Waiting for the first host</Badge>
      ) : (
        <Badge tone="ok" strong>
          {plural(total, "host")} {total === 1 ? "has" : "have"} arrived
        </Badge>
      )}
      {items.map((a) => (
        <span key={a.id}>
          <TextLink to="/agents/$agentId" params={{ agentId: a.id }} inherit underline="always">
            {hostOf(a)}
          </TextLink>{" "}
          <Ago at={a.enrolled_at} />
        </span>
      ))}
      {total === 0 ? <span className={classes.hint}>It appears here within seconds.</span> : null}
    </div>
  );
}
