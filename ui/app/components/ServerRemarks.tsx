import { Stack } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { serversQuery } from "~/api/queries";
import { sentence } from "~/util/words";
import { Callout } from "./Callout";
import { TextLink } from "./TextLink";

/** What an operator should know about the servers, such as that two minor versions run. Mostly there is nothing. */
export function ServerRemarks({ link }: { link?: boolean }) {
  const { data } = useQuery(serversQuery);
  if (!data?.remarks.length) return null;
  return (
    <Stack gap="xs" mb="sm">
      {data.remarks.map((text) => (
        <Callout key={text} kind="warning">{sentence(text)}{link ? <> <TextLink to="/servers" inherit underline="always">All servers</TextLink></> : null}</Callout>
      ))}
    </Stack>
  );
}
