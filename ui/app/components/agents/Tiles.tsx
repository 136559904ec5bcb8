/** The fleet in numbers, each a filter: hosts by health, and those whose upgrade failed. */
import { Button } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { failuresSeen } from "~/api/bulk";
import { messageOf } from "~/api/client";
import { attentionQuery } from "~/api/overview";
import { keys } from "~/api/queries";
import { Badge, HealthBadge } from "~/components/base/Badge";
import { toast } from "~/components/base/Toasts";
import type { FacetCounts } from "~/hooks/useFacets";
import type { AgentsSearch } from "~/util/agents/search";
import { countIn, FAILED_PROGRESS, sameValues, TILE_HEALTH } from "~/util/agents/tiles";
import { healthTone, healthWord } from "~/util/state";
import classes from "./Tiles.module.css";

interface Props {
  facets: FacetCounts;
  search: AgentsSearch;
  onFilter: (change: Partial<AgentsSearch>) => void;
}

export function Tiles({ facets, search, onFilter }: Props) {
  const { health, progress } = facets;
  const total = health ? health.values.reduce((sum, v) => sum + v.count, health.other) : undefined;
  const failed = progress ? FAILED_PROGRESS.reduce((sum, s) => sum + countIn(progress, s), 0) : undefined;
  const failedOn = sameValues(search.progress, FAILED_PROGRESS);
  return (
    <div className={classes.tiles} role="group" aria-label="Numbers, each a filter">
      <Tile label="All" count={total} on={!search.health} onClick={() => onFilter({ health: undefined })} />
      {TILE_HEALTH.map((h) => (
        <Tile
          key={h}
          tone={healthTone(h)}
          label={<HealthBadge health={h} />}
          name={healthWord[h]}
          count={health ? countIn(health, h) : undefined}
          on={sameValues(search.health, [h])}
          onClick={() => onFilter({ health: sameValues(search.health, [h]) ? undefined : [h] })}
        />
      ))}
      <div className={classes.failures}>
        <Tile
          tone="bad"
          label={<Badge tone="bad">Upgrade failed or rolled back</Badge>}
          name="Upgrade failed or rolled back"
          count={failed}
          on={failedOn}
          onClick={() => onFilter({ progress: failedOn ? undefined : [...FAILED_PROGRESS] })}
        />
        <Unseen />
      </div>
    </div>
  );
}

interface TileProps {
  label: React.ReactNode;
  name?: string;
  tone?: string;
  count: number | undefined;
  on: boolean;
  onClick: () => void;
}

function Tile({ label, name, tone, count, on, onClick }: TileProps) {
  return (
    <button
      type="button"
      className={classes.tile}
      aria-pressed={on}
      data-tone={tone}
      data-zero={count === 0 || undefined}
      onClick={onClick}
      aria-label={`${name ?? "All hosts"}: ${count === undefined ? "counting" : count.toLocaleString()}`}
    >
      <span className={classes.label}>{label}</span>
      <span className={classes.count}>{count === undefined ? " " : count.toLocaleString()}</span>
    </button>
  );
}

/** Failures that the reader has not seen; the number in the navigation is the same. */
function Unseen() {
  const client = useQueryClient();
  const { data } = useQuery(attentionQuery);
  const see = useMutation({
    mutationFn: failuresSeen,
    onSuccess: () => Promise.all([client.invalidateQueries({ queryKey: keys.attention }), client.invalidateQueries({ queryKey: keys.failures })]),
    onError: (error) => toast({ kind: "error", title: "The failures are not marked as seen", body: messageOf(error) }),
  });
  const unseen = data?.failures_unseen ?? 0;
  if (unseen === 0) return null;
  return (
    <span className={classes.unseen}>
      <span className={classes.new}>{unseen.toLocaleString()} new</span>
      <Button variant="subtle" color="gray" size="compact-sm" loading={see.isPending} onClick={() => see.mutate()}>
        Mark as seen
      </Button>
    </span>
  );
}
