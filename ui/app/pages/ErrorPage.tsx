/** Errors and addresses without a page, within the shell. */
import { Button } from "@mantine/core";
import { IconMapOff, IconPlugConnectedX } from "@tabler/icons-react";
import { type ErrorComponentProps, useRouter } from "@tanstack/react-router";
import { messageOf } from "~/api/client";
import { Empty, PageHead } from "~/components/base/Page";
import { TextLink } from "~/components/base/TextLink";

export function ErrorPage({ error, reset }: ErrorComponentProps) {
  const router = useRouter();
  const retry = () => {
    reset();
    void router.invalidate();
  };
  return (
    <div role="alert">
      <PageHead title="This page could not be shown" />
      <Empty icon={<IconPlugConnectedX size={36} stroke={1.5} aria-hidden />} title={messageOf(error)}>
        <p>Nothing has been changed. The other pages are not concerned.</p>
        <Button onClick={retry}>Retry</Button>
      </Empty>
    </div>
  );
}

export function NotFoundPage() {
  return (
    <>
      <PageHead title="There is no such page" />
      <Empty icon={<IconMapOff size={36} stroke={1.5} aria-hidden />} title="The address may be misspelt, or what it showed has been removed.">
        <p>
          <TextLink to="/">Go to the overview</TextLink> or <TextLink to="/agents">to the agents</TextLink>.
        </p>
      </Empty>
    </>
  );
}
