import { IconArrowRight } from "@tabler/icons-react";
import type { FleetDiff, FleetPreview } from "~/api/types";
import { startsText, tookText } from "~/util/fleet/fleet";
import { fleetText } from "~/util/fleet/fleetYaml";
import { shortHash } from "~/util/rollout/preview";
import { plural, sentence } from "~/util/words";
import { Callout } from "../base/Callout";
import { type Column, DataTable } from "../base/DataTable";
import { Empty, Section } from "../base/Page";
import { DiffView } from "./DiffView";
import classes from "./Fleet.module.css";

/** What saving a fleet would do: the difference of its text, and the rollout that would start. */
export function FleetReview({ diff: d }: { diff: FleetDiff }) {
  const starts = startsText(d);
  return (
    <div className={classes.stack}>
      <Section title="Difference" aside={<span className={classes.sub}>{d.before ? plural(d.changed.length, "field") : "A new fleet"}</span>} flush>
        <DiffView before={d.before ? fleetText(d.before) : ""} after={fleetText(d.after)} label="Difference of the text" />
        {d.before && d.changed.length === 0 ? <Empty title="Nothing differs from what is stored" /> : null}
      </Section>
      <Callout kind={d.startsRollout ? "warning" : "info"} title={starts.title}>
        <div>{starts.text}</div>
        {d.waitsFor ? <div>It waits: {sentence(d.waitsFor)}</div> : null}
        <div className={classes.hashes}>
          Hash{" "}
          {d.hashBefore ? (
            <span className="mono" title={d.hashBefore}>
              {shortHash(d.hashBefore)}…
            </span>
          ) : null}
          {d.hashBefore === d.hashAfter ? (
            "stays"
          ) : (
            <>
              {d.hashBefore ? <IconArrowRight size={14} aria-label="becomes" /> : null}
              <span className="mono" title={d.hashAfter}>
                {shortHash(d.hashAfter)}…
              </span>
            </>
          )}
        </div>
      </Callout>
      {d.previews.length > 0 ? (
        <Section title="Its rollouts, in this order" plain>
          <DataTable label="Preview of each part" columns={columns} rows={d.previews} rowId={(p) => p.part} />
        </Section>
      ) : null}
    </div>
  );
}

const columns: Column<FleetPreview>[] = [
  { id: "part", header: "Part", cell: (p) => <b>{p.part}</b> },
  { id: "version", header: "Version", cell: (p) => <span className="mono">{p.version || "–"}</span> },
  { id: "hosts", header: "Hosts", align: "end", cell: (p) => (p.error ? "–" : p.targets.toLocaleString()) },
  { id: "out", header: "Left out", align: "end", cell: (p) => (p.error ? "–" : p.skipped.toLocaleString()) },
  { id: "batches", header: "Batches", align: "end", wide: true, cell: (p) => (p.error ? "–" : p.batches.toLocaleString()) },
  { id: "about", header: "About", cell: (p) => (p.error ? sentence(p.error) : tookText(p) || "–") },
];
