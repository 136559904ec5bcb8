import type { Tried } from "~/api/plans";
import type { MemberRow } from "~/util/group/groupForm";
import { causesOf, willOf, wontOf } from "~/util/plan/planPreview";
import { durationText } from "~/util/rollout/rolloutText";
import { sentence } from "~/util/words";
import { type Column, DataTable } from "../base/DataTable";

interface Row extends MemberRow {
  tried?: Tried;
}

const columns: Column<Row>[] = [
  { id: "name", header: "Member", cell: (m) => <b>{m.name}</b> },
  { id: "version", header: "Version", cell: (m) => <span className="mono">{m.version || "–"}</span> },
  { id: "hosts", header: "Hosts", align: "end", cell: (m) => (m.tried?.preview ? willOf(m.tried.preview).toLocaleString() : "–") },
  { id: "out", header: "Left out", align: "end", cell: (m) => (m.tried?.preview ? wontOf(m.tried.preview).toLocaleString() : "–") },
  { id: "batches", header: "Batches", align: "end", wide: true, cell: (m) => (m.tried?.preview ? m.tried.preview.batches.length.toLocaleString() : "–") },
  { id: "about", header: "About", nowrap: true, cell: (m) => (m.tried?.preview ? durationText(m.tried.preview.estimate) : "–") },
  {
    id: "why",
    header: "Why left out",
    wide: true,
    cell: (m) =>
      m.tried?.preview
        ? causesOf(m.tried.preview)
            .filter((c) => !c.will)
            .map((c) => `${c.count.toLocaleString()}: ${sentence(c.text)}`)
            .join(" ") || "–"
        : m.tried
          ? "The server refuses it"
          : "–",
  },
];

/** What each member of a group would do if it began now. */
export function GroupPlanPreview({ members, tried, busy }: { members: MemberRow[]; tried: readonly Tried[] | undefined; busy: boolean }) {
  return (
    <DataTable
      label="What each member would do"
      columns={columns}
      rows={members.map((m, i) => ({ ...m, tried: tried?.[i] }))}
      rowId={(m) => m.name}
      busy={busy}
    />
  );
}
