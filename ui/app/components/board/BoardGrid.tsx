/** The grid of a rollout's hosts, whose clicks filter the table below. */
import { useMemo } from "react";
import type { Rollout, RolloutGrid } from "~/api/types";
import { batchNameOf } from "~/util/board/board";
import type { BoardSearch } from "~/util/rollout/rolloutSearch";
import { HostGrid } from "../grid/HostGrid";

interface Props {
  rollout: Rollout;
  grid: RolloutGrid;
  search: BoardSearch;
  onShow: (change: Partial<BoardSearch>) => void;
}

export function BoardGrid({ rollout: r, grid, search, onShow }: Props) {
  const named = JSON.stringify((r.batches ?? []).filter((b) => b.kind === "canary").map((b) => [b.index, batchNameOf(b)]));
  // By content: each answer of the server has new objects, and new names would lay out the grid again.
  const batchNames = useMemo(() => Object.fromEntries(JSON.parse(named) as [number, string][]), [named]);
  return (
    <HostGrid
      batches={grid.batches}
      states={grid.states}
      progress={grid.progress}
      hostnames={grid.hostnames}
      agentIds={grid.agent_ids}
      picked={search.host}
      onPick={(host) => onShow({ host: host === search.host ? undefined : host })}
      onPickBatch={(batch) => onShow({ batch: batch === search.batch ? undefined : batch, host: undefined })}
      shown={search.state}
      onShow={(state) => onShow({ state: state.length > 0 ? state : undefined, host: undefined })}
      batchNames={batchNames}
    />
  );
}
