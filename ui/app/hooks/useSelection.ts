/** The selected hosts: rows of the page, or all that match, by their query. Another query, page or order starts afresh. */
import { useState } from "react";
import type { Agent, AgentList } from "~/api/types";
import { orderQuery } from "~/util/agents/agentsQuery";
import type { Chosen } from "~/util/agents/chosen";
import type { AgentsSearch } from "~/util/agents/search";

const NONE: ReadonlySet<string> = new Set();

export interface Selected {
  /** For the table. */
  ids: ReadonlySet<string>;
  /** For an order; undefined while the server counts. */
  chosen: Chosen | undefined;
  everything: boolean;
  pick: (ids: ReadonlySet<string>) => void;
  pickAll: () => void;
  clear: () => void;
}

/** list is the answer for this search; undefined while it is read, or if the query is refused. */
export function useSelection(search: AgentsSearch, list: AgentList | undefined): Selected {
  const kuery = orderQuery(search);
  const key = JSON.stringify([kuery, search.inactive, search.page, search.sort, search.desc]);
  const [state, setState] = useState<{ key: string; ids: ReadonlySet<string>; all: boolean }>({ key, ids: NONE, all: false });
  const { ids, all } = state.key === key ? state : { ids: NONE, all: false };
  const rows: readonly Agent[] = list?.items ?? [];
  // Only rows that are shown count, so that no host is changed that nobody sees.
  const picked = all ? rows : rows.filter((a) => ids.has(a.id));
  return {
    ids: all ? new Set(rows.map((a) => a.id)) : ids,
    chosen: !all ? picked : list ? { kuery, inactive: search.inactive ?? false, count: list.total } : undefined,
    everything: all,
    pick: (next) => setState({ key, ids: next, all: false }),
    pickAll: () => setState({ key, ids: NONE, all: true }),
    clear: () => setState({ key, ids: NONE, all: false }),
  };
}
