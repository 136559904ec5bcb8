/** The facets: a column beside the table, or a drawer where there is no room. */
import { Drawer, Switch } from "@mantine/core";
import type { Facet } from "~/api/types";
import { FacetList } from "~/components/base/FacetList";
import { Loading } from "~/components/base/Page";
import type { FacetCounts } from "~/hooks/useFacets";
import { FACET_TITLES, facetWord, toggled } from "~/util/agents/agentsQuery";
import { type AgentsSearch, FACETS, type FacetField } from "~/util/agents/search";
import classes from "./Agents.module.css";

interface Props {
  facets: FacetCounts;
  search: AgentsSearch;
  /** The server refuses the query, so no counts will come. */
  refused: boolean;
  onFilter: (change: Partial<AgentsSearch>) => void;
}

const chosenIn = (search: AgentsSearch) => Object.fromEntries(FACETS.map((f) => [f, search[f] ?? []]));

function Panel({ facets, search, refused, onFilter }: Props) {
  const list = FACETS.flatMap((f): Facet[] => (facets[f] ? [facets[f]] : []));
  return (
    <>
      {list.length === 0 ? (
        refused ? null : (
          <Loading rows={12} />
        )
      ) : (
        <FacetList
          facets={list}
          titles={FACET_TITLES}
          valueWord={facetWord}
          chosen={chosenIn(search)}
          onToggle={(field, value) => onFilter({ [field]: toggled(search[field as FacetField], value) })}
        />
      )}
      <Switch
        className={classes.inactive}
        label="Show inactive and unenrolled"
        checked={search.inactive ?? false}
        onChange={(e) => onFilter({ inactive: e.currentTarget.checked || undefined })}
      />
    </>
  );
}

export const FacetColumn = (props: Props) => (
  <aside className={classes.facets} aria-label="Filters">
    <Panel {...props} />
  </aside>
);

export function FacetDrawer({ onClose, ...props }: Props & { onClose: () => void }) {
  return (
    <Drawer opened onClose={onClose} title="Filters" size={300} closeButtonProps={{ "aria-label": "Close" }}>
      <Panel {...props} />
    </Drawer>
  );
}
