/** Receivers of events, and what could not be delivered. */
import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { settingsQuery } from "~/api/overview";
import { PageHead } from "~/components/base/Page";
import { TextLink } from "~/components/base/TextLink";
import { DeadLetters } from "~/components/webhook/DeadLetters";
import { Receivers } from "~/components/webhook/Receivers";
import { CreateWebhookDialog } from "~/components/webhook/WebhookDialogs";
import classes from "./Admin.module.css";

const route = getRouteApi("/shell/webhooks");

export function WebhooksPage() {
  const { page = 1 } = route.useSearch();
  const navigate = useNavigate({ from: "/webhooks" });
  const settings = useQuery(settingsQuery);
  const [adding, setAdding] = useState(false);
  const allow = settings.data?.find((s) => s.key === "webhooks.allow")?.value;
  return (
    <>
      <PageHead title="Webhooks" docs="server" sub="Webhooks send signed events of rollouts and incidents to other systems.">
        <Button onClick={() => setAdding(true)}>Add webhook…</Button>
      </PageHead>
      <div className={classes.stack}>
        <Receivers />
        {settings.data ? (
          <p className={classes.note}>
            {allow ? (
              <>
                Inside the network, webhooks reach only <span className="mono">{allow}</span>.
              </>
            ) : (
              "Webhooks reach the internet, and nothing inside the network."
            )}{" "}
            The setting{" "}
            <TextLink to="/settings" search={{ q: "webhooks.allow" }} inherit underline="always">
              <span className="mono">webhooks.allow</span>
            </TextLink>{" "}
            names more.
          </p>
        ) : null}
        <DeadLetters page={page} onPage={(n) => void navigate({ search: { page: n } })} />
      </div>
      {adding ? <CreateWebhookDialog onClose={() => setAdding(false)} /> : null}
    </>
  );
}
