import { useQuery } from "@tanstack/react-query";
import { serversQuery } from "~/api/queries";
import { sentence } from "~/util/words";
import { Callout } from "../base/Callout";

/** What an operator should know about the servers, such as that two minor versions run. Mostly there is nothing. */
export function ServerRemarks() {
  const { data } = useQuery(serversQuery);
  return data?.remarks.map((text) => (
    <Callout key={text} kind="warning">
      {sentence(text)}
    </Callout>
  ));
}
