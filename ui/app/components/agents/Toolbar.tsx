/** Above the table: how many hosts match, and how they are shown. */
import { Button, Menu } from "@mantine/core";
import { IconBaselineDensityMedium, IconBaselineDensitySmall, IconColumns3, IconDownload, IconFilter } from "@tabler/icons-react";
import { exportUrl } from "~/api/agents";
import type { TableLook } from "~/hooks/useTableLook";
import { COLUMNS, FIRST_COLUMNS } from "~/util/agents/agentColumns";
import { chipsOf, kueryOf } from "~/util/agents/agentsQuery";
import type { AgentsSearch } from "~/util/agents/search";
import { plural } from "~/util/words";
import classes from "./Agents.module.css";
import { ViewsMenu } from "./ViewsMenu";

interface Props {
  search: AgentsSearch;
  total: number | undefined;
  look: TableLook;
  /** The server refuses the query. */
  refused: boolean;
  /** Opens the facets, where they are not beside the table. */
  onFilters?: () => void;
}

function countText(total: number | undefined, refused: boolean, filtered: boolean): string {
  if (refused) return total === undefined ? "" : "Hosts of the query before";
  if (total === undefined) return "Counting hosts";
  return filtered ? `${plural(total, "host")} ${total === 1 ? "matches" : "match"}` : plural(total, "host");
}

export function Toolbar({ search, total, refused, look, onFilters }: Props) {
  const kuery = kueryOf(search);
  const filters = chipsOf(search).length;
  const compact = look.density === "compact";
  return (
    <div className={classes.toolbar}>
      <span className={classes.matches} role="status">
        {countText(total, refused, !!kuery)}
      </span>
      {onFilters ? (
        <Button variant="default" leftSection={<IconFilter size={14} aria-hidden />} onClick={onFilters}>
          Filters{filters > 0 ? ` (${filters})` : ""}
        </Button>
      ) : null}
      <ViewsMenu />
      <Menu position="bottom-end" width={200} closeOnItemClick={false}>
        <Menu.Target>
          <Button variant="default" className={classes.onlyWide} leftSection={<IconColumns3 size={14} aria-hidden />}>
            Columns
          </Button>
        </Menu.Target>
        <Menu.Dropdown>
          {COLUMNS.filter((c) => c.id !== "host").map((c) => {
            const on = look.columns.includes(c.id);
            return (
              <Menu.CheckboxItem
                key={c.id}
                checked={on}
                onChange={() => look.setColumns(on ? look.columns.filter((id) => id !== c.id) : [...look.columns, c.id])}
              >
                {c.header}
              </Menu.CheckboxItem>
            );
          })}
          <Menu.Divider />
          <Menu.Item onClick={() => look.setColumns([...FIRST_COLUMNS])}>Show the usual columns</Menu.Item>
        </Menu.Dropdown>
      </Menu>
      <Button
        variant="default"
        className={classes.onlyWide}
        leftSection={compact ? <IconBaselineDensitySmall size={14} aria-hidden /> : <IconBaselineDensityMedium size={14} aria-hidden />}
        aria-pressed={compact}
        onClick={() => look.setDensity(compact ? "comfortable" : "compact")}
      >
        Compact
      </Button>
      <Button variant="default" component="a" href={exportUrl(kuery, search.inactive)} download leftSection={<IconDownload size={14} aria-hidden />}>
        Export CSV
      </Button>
    </div>
  );
}
