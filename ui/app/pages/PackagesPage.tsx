/** What hosts can be upgraded to. */
import { Button } from "@mantine/core";
import { IconPackage } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { trustQuery, withdrawPackage } from "~/api/packages";
import { keys, packagesQuery, publisherKeysQuery } from "~/api/queries";
import type { Package } from "~/api/types";
import { Badge } from "~/components/base/Badge";
import { CopyBlock } from "~/components/base/CopyBlock";
import { type Column, DataTable } from "~/components/base/DataTable";
import { Dialog } from "~/components/base/Dialog";
import { FilterInput } from "~/components/base/FilterInput";
import { Empty, LoadError, Loading, PageHead } from "~/components/base/Page";
import { SubNav } from "~/components/base/SubNav";
import { TextLink } from "~/components/base/TextLink";
import { When } from "~/components/base/Time";
import { ReleaseFiles } from "~/components/packages/ReleaseFiles";
import { UploadDialog } from "~/components/packages/UploadDialog";
import { useChange } from "~/hooks/useChange";
import { platformOf, platformsText, productOf, type Release, releasesOf, runsReleaseQuery } from "~/util/packages/packages";
import { matchesWords } from "~/util/settings/adminSearch";
import { plural, sentence, size } from "~/util/words";
import classes from "./Admin.module.css";
import { PACKAGE_PAGES } from "./subPages";

const route = getRouteApi("/shell/packages");

export function PackagesPage() {
  const { q } = route.useSearch();
  const navigate = useNavigate({ from: "/packages" });
  const packages = useQuery(packagesQuery);
  const trust = useQuery(trustQuery);
  const publishers = useQuery(publisherKeysQuery);
  const [uploading, setUploading] = useState(false);
  const [withdrawing, setWithdrawing] = useState<Package | null>(null);
  const root = trust.data?.published ?? false;
  const releases = useMemo(() => releasesOf(packages.data ?? []), [packages.data]);
  const shown = releases.filter((r) =>
    matchesWords(q, [r.product, r.version, ...r.files.flatMap((p) => [p.file, platformOf(p)]), platformsText(r.files), ...r.pushedBy]),
  );
  const keyName = (id: string) => publishers.data?.find((k) => k.id === id)?.name || id || "the targets file";
  const columns: Column<Release>[] = [
    { id: "product", header: "Product", nowrap: true, cell: (r) => <strong>{r.product}</strong> },
    {
      id: "version",
      header: "Version",
      nowrap: true,
      cell: (r) => (
        <span className={classes.inline}>
          <span className="mono">{r.version}</span>
          {r.snapshot ? <span className={classes.tag}>snapshot</span> : null}
        </span>
      ),
    },
    {
      id: "state",
      header: "State",
      nowrap: true,
      cell: (r) =>
        r.withheld ? (
          <Badge tone="wait" title={sentence(r.withheld)}>
            Withheld
          </Badge>
        ) : (
          <Badge tone="ok">Published</Badge>
        ),
    },
    { id: "platforms", header: "Platforms", nowrap: true, wide: true, cell: (r) => <span className={classes.sub}>{platformsText(r.files)}</span> },
    { id: "size", header: "Size", align: "end", nowrap: true, wide: true, cell: (r) => size(r.size) },
    {
      id: "signed",
      header: "Signed by",
      nowrap: true,
      wide: true,
      cell: (r) => [...(r.signed ? ["targets file"] : []), ...r.keyIds.map(keyName)].join(", ") || "–",
    },
    {
      id: "pushed",
      header: "Pushed",
      nowrap: true,
      wide: true,
      cell: (r) => (
        <>
          <When at={r.pushedAt} />
          {r.pushedBy.length > 0 ? <span className={classes.muted}> by {r.pushedBy.join(", ")}</span> : null}
        </>
      ),
    },
    {
      id: "hosts",
      header: "Hosts",
      quiet: true,
      align: "end",
      nowrap: true,
      cell: (r) => (
        <TextLink to="/agents" search={{ kuery: runsReleaseQuery(r) }} inherit underline="always" aria-label={`Hosts that run ${r.product} ${r.version}`}>
          Hosts
        </TextLink>
      ),
    },
  ];
  return (
    <>
      <PageHead title="Packages & trust" docs="packages" sub="What hosts can be upgraded to. Hosts install only what a publisher that they trust has signed.">
        <Button onClick={() => setUploading(true)}>Push packages…</Button>
      </PageHead>
      <SubNav label="Packages and trust" pages={PACKAGE_PAGES} />
      {packages.isError ? <LoadError what="The packages" error={packages.error} onRetry={() => void packages.refetch()} /> : null}
      {packages.isPending ? <Loading /> : null}
      {packages.isSuccess && releases.length === 0 ? (
        <Empty icon={<IconPackage size={32} stroke={1.5} aria-hidden />} title="No package is published yet">
          <p>Build and push one with these commands, on the machine with your signing key. Or push an archive from this page, and sign for it there.</p>
          <CopyBlock label="Commands that publish a package" text={PUBLISH} />
        </Empty>
      ) : null}
      {releases.length > 0 ? (
        <>
          <div className={classes.toolbar}>
            <FilterInput
              label="Find a product, version or platform"
              value={q ?? ""}
              onChange={(text) => void navigate({ search: { q: text || undefined }, replace: true })}
            />
            <span>
              {plural(shown.length, "version")},{" "}
              {plural(
                shown.reduce((n, r) => n + r.files.length, 0),
                "archive",
              )}
            </span>
          </div>
          <DataTable
            label="Packages by product and version"
            columns={columns}
            rows={shown}
            rowId={(r) => r.id}
            rowName={(r) => `${r.product} ${r.version}`}
            density="compact"
            expanded={(r) => <ReleaseFiles release={r} keyName={keyName} onWithdraw={setWithdrawing} />}
          />
        </>
      ) : null}
      {uploading ? <UploadDialog root={root} onClose={() => setUploading(false)} /> : null}
      {withdrawing ? <WithdrawDialog pkg={withdrawing} onClose={() => setWithdrawing(null)} /> : null}
    </>
  );
}

const PUBLISH = `muster package build --version VERSION --file muster-agent=muster-agent --file muster-watcher=muster-watcher
muster package push muster-agent-VERSION-linux-amd64.tar.gz --targets-key release/targets-1.key`;

function WithdrawDialog({ pkg: p, onClose }: { pkg: Package; onClose: () => void }) {
  const withdraw = useChange({
    run: (why: string) => withdrawPackage(p.file, why),
    done: `${p.file} is withdrawn`,
    stale: [keys.packages, keys.versions, keys.preview, keys.trails],
    after: onClose,
  });
  return (
    <Dialog
      title={`Withdraw ${productOf(p)} ${p.version} for ${platformOf(p)}?`}
      confirm="Withdraw package"
      danger
      typed={p.version}
      why="optional"
      busy={withdraw.isPending}
      error={withdraw.error}
      onConfirm={(why) => withdraw.mutate(why)}
      onClose={onClose}
    >
      <p>
        Hosts that run it keep it, but no host can download <span className="mono">{p.file}</span> any more. Upgrades to it that have not downloaded yet fail.
      </p>
    </Dialog>
  );
}
