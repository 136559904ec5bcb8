/** The active filters, each with its way out. */
import { Button, CloseButton } from "@mantine/core";
import type { FacetCounts } from "~/hooks/useFacets";
import { chipsOf, FACET_TITLES, facetWord, NO_FILTERS, toggled } from "~/util/agents/agentsQuery";
import type { AgentsSearch } from "~/util/agents/search";
import classes from "./Agents.module.css";

interface Props {
  search: AgentsSearch;
  facets: FacetCounts;
  onFilter: (change: Partial<AgentsSearch>) => void;
}

export function Chips({ search, facets, onFilter }: Props) {
  const chips = chipsOf(search);
  if (chips.length === 0) return null;
  return (
    <div className={classes.chips} role="group" aria-label="Active filters">
      {chips.map(({ field, value }) => {
        const label = facets[field]?.values.find((v) => v.value === value)?.label ?? facetWord(field, value);
        return (
          <span key={`${field} ${value}`} className={classes.chip}>
            <span>
              <span className={classes.chipField}>{FACET_TITLES[field]}</span> {label}
            </span>
            <CloseButton
              size="xs"
              radius="xl"
              aria-label={`Remove the filter ${FACET_TITLES[field]} ${label}`}
              onClick={() => onFilter({ [field]: toggled(search[field], value) })}
            />
          </span>
        );
      })}
      <Button variant="subtle" color="gray" size="compact-sm" onClick={() => onFilter(NO_FILTERS)}>
        Clear filters
      </Button>
    </div>
  );
}
