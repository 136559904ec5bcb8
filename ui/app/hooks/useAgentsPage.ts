/** A page of the list of agents, with the rows of the last good query while the present one is refused. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { agentsPageQuery, agentTotalQuery } from "~/api/agents";
import { ApiError } from "~/api/client";
import type { AgentList } from "~/api/types";
import { kueryOf, textQuery } from "~/util/agents/agentsQuery";
import { type AgentsSearch, SORT_FIELDS } from "~/util/agents/search";

export function useAgentsPage(search: AgentsSearch) {
  const kuery = kueryOf(search);
  const { page = 1, sort = "host", desc, inactive } = search;
  const list = useQuery(agentsPageQuery({ kuery, showInactive: inactive, sortField: SORT_FIELDS[sort], desc, page }));
  const [last, setLast] = useState<AgentList>();
  if (list.data && list.data !== last) setLast(list.data);
  const refused = isRefusal(list.error) ? list.error : null;
  // The server's mark stands under the text that it was given. Alone, the text of the bar gets its own mark.
  const text = textQuery(search.kuery);
  const own = useQuery({ ...agentTotalQuery(text, inactive), enabled: !!refused && text !== "" && text !== kuery, refetchInterval: false });
  const fault = refused ? (isRefusal(own.error) ? own.error : refused).message : undefined;
  return { list, data: list.data ?? last, fault };
}

function isRefusal(error: unknown): error is ApiError {
  return error instanceof ApiError && error.statusCode === 400;
}
