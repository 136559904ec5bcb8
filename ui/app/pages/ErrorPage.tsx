import { Button } from "@mantine/core";
import { IconPlugConnectedX, IconMapOff } from "@tabler/icons-react";
import { Link, useRouter, type ErrorComponentProps } from "@tanstack/react-router";
import { messageOf } from "~/api/client";
import { Empty } from "~/components/Blocks";

export function ErrorPage({ error, reset }: ErrorComponentProps) {
  const router = useRouter();
  const again = () => {
    reset();
    void router.invalidate();
  };
  return (
    <main role="alert">
      <Empty icon={<IconPlugConnectedX size={36} stroke={1.5} aria-hidden />} title="This page could not be shown">
        <p>{messageOf(error)}</p>
        <Button onClick={again}>Try again</Button>
      </Empty>
    </main>
  );
}

export function NotFoundPage() {
  return (
    <main>
      <Empty icon={<IconMapOff size={36} stroke={1.5} aria-hidden />} title="There is no such page">
        <p><Link to="/agents">Go to the agents</Link></p>
      </Empty>
    </main>
  );
}
