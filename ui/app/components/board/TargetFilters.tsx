/** The filters of the table of hosts: each that is set as a chip that removes it. */
import { Autocomplete, Button, Select } from "@mantine/core";
import { IconSearch, IconX } from "@tabler/icons-react";
import { useState } from "react";
import type { Rollout, RolloutGrid } from "~/api/types";
import { batchNameOf } from "~/util/board/board";
import { matchHosts } from "~/util/board/boardGrid";
import { groupLook } from "~/util/grid/gridClass";
import { toggled } from "~/util/grid/gridText";
import type { BoardSearch } from "~/util/rollout/rolloutSearch";
import { codeText } from "~/util/rollout/rolloutText";
import classes from "./Board.module.css";

interface Props {
  rollout: Rollout;
  grid: RolloutGrid | undefined;
  search: BoardSearch;
  onShow: (change: Partial<BoardSearch>) => void;
}

export function TargetFilters({ rollout: r, grid, search, onShow }: Props) {
  const [text, setText] = useState("");
  const matches = matchHosts(grid, text);
  const hostname = search.host === undefined ? "" : (grid?.hostnames[grid.agent_ids.indexOf(search.host)] ?? search.host);
  const chips: [string, Partial<BoardSearch>][] = [
    ...(search.host === undefined ? [] : [[`Host ${hostname}`, { host: undefined }] as [string, Partial<BoardSearch>]]),
    ...(search.state ?? []).map((g): [string, Partial<BoardSearch>] => {
      const rest = toggled(search.state ?? [], g);
      return [groupLook[g].label, { state: rest.length > 0 ? rest : undefined }];
    }),
    ...(search.code === undefined ? [] : [[`Cause: ${codeText(search.code)}`, { code: undefined }] as [string, Partial<BoardSearch>]]),
  ];
  return (
    <div className={classes.filters}>
      <Autocomplete
        className={classes.hostFilter}
        size="xs"
        aria-label="Find a host of this rollout"
        placeholder="Find a host"
        leftSection={<IconSearch size={14} aria-hidden />}
        value={text}
        data={matches.map((m) => m.hostname)}
        filter={({ options }) => options}
        onChange={setText}
        onOptionSubmit={(name) => {
          const match = matches.find((m) => m.hostname === name);
          if (match) onShow({ host: match.agentId });
          setText("");
        }}
      />
      <Select
        className={classes.batchFilter}
        clearable
        searchable
        limit={50}
        placeholder="All batches"
        aria-label="Batch"
        nothingFoundMessage="No such batch"
        data={(r.batches ?? []).map((b) => ({ value: String(b.index), label: batchNameOf(b) }))}
        value={search.batch === undefined ? null : String(search.batch)}
        onChange={(b) => onShow({ batch: b === null ? undefined : Number(b) })}
      />
      {chips.map(([label, without]) => (
        <button key={label} type="button" className={classes.chip} aria-label={`Remove the filter ${label}`} onClick={() => onShow(without)}>
          {label} <IconX size={12} aria-hidden />
        </button>
      ))}
      {chips.length + (search.batch === undefined ? 0 : 1) > 1 ? (
        <Button
          variant="subtle"
          size="compact-sm"
          color="gray"
          onClick={() => onShow({ state: undefined, batch: undefined, code: undefined, host: undefined })}
        >
          Clear filters
        </Button>
      ) : null}
    </div>
  );
}
