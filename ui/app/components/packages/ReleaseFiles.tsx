/** The archives of one version, each of which can be withdrawn. */
import type { Package } from "~/api/types";
import { Badge } from "~/components/base/Badge";
import { CopyIcon } from "~/components/base/CopyBlock";
import { type Column, DataTable } from "~/components/base/DataTable";
import { RowButton } from "~/components/base/RowButton";
import classes from "~/pages/Admin.module.css";
import { platformOf, type Release } from "~/util/packages/packages";
import { sentence, size } from "~/util/words";

export function ReleaseFiles({ release, keyName, onWithdraw }: { release: Release; keyName: (id: string) => string; onWithdraw: (p: Package) => void }) {
  const columns: Column<Package>[] = [
    { id: "platform", header: "Platform", nowrap: true, cell: platformOf },
    {
      id: "file",
      header: "File",
      cell: (p) => (
        <>
          <span className="mono">{p.file}</span>
          {p.withheld ? <div className={classes.sub}>{sentence(p.withheld)}</div> : null}
        </>
      ),
    },
    { id: "size", header: "Size", align: "end", nowrap: true, cell: (p) => size(p.size) },
    {
      id: "sha",
      header: "SHA-256",
      nowrap: true,
      wide: true,
      cell: (p) => (
        <span className={classes.copy}>
          <span className="mono" title={p.sha256}>
            {p.sha256.slice(0, 12)}…
          </span>
          <CopyIcon text={p.sha256} label={`Copy the SHA-256 of ${p.file}`} />
        </span>
      ),
    },
    {
      id: "commit",
      header: "Commit",
      nowrap: true,
      wide: true,
      cell: (p) => (
        <span className="mono" title={p.hash}>
          {p.hash.slice(0, 8)}
        </span>
      ),
    },
    {
      id: "signed",
      header: "Signature",
      nowrap: true,
      wide: true,
      cell: (p) => (p.withheld ? <Badge tone="wait">Withheld</Badge> : <span>{p.signed ? "targets file" : keyName(p.key_id)}</span>),
    },
    {
      id: "act",
      header: "Actions",
      quiet: true,
      align: "end",
      cell: (p) => (
        <RowButton danger label={`Withdraw ${p.file}`} onClick={() => onWithdraw(p)}>
          Withdraw…
        </RowButton>
      ),
    },
  ];
  return <DataTable label={`Archives of ${release.product} ${release.version}`} columns={columns} rows={release.files} rowId={(p) => p.file} />;
}
