/** Who signs, what expires, the floor, and the commands for the trust in use. */
import { Button, FileButton } from "@mantine/core";
import { IconShieldLock } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { base64, publishTrust, trustQuery } from "~/api/packages";
import { keys } from "~/api/queries";
import { Callout } from "~/components/base/Callout";
import { CopyBlock } from "~/components/base/CopyBlock";
import { Dialog } from "~/components/base/Dialog";
import { Empty, LoadError, Loading, PageHead, Section } from "~/components/base/Page";
import { SubNav } from "~/components/base/SubNav";
import { PublisherKeys } from "~/components/packages/PublisherKeys";
import { Role, TrustFacts } from "~/components/packages/TrustRoles";
import { useChange } from "~/hooks/useChange";
import { recipesFor } from "~/util/packages/trust";
import { plural, sentence } from "~/util/words";
import classes from "./Admin.module.css";
import { PACKAGE_PAGES } from "./subPages";

export function TrustPage() {
  const trust = useQuery(trustQuery);
  const [files, setFiles] = useState<File[]>([]);
  const t = trust.data;
  return (
    <>
      <PageHead
        title="Packages & trust"
        name="Trust"
        docs="trust"
        sub="Who must sign what hosts install, when each signature expires, and how to renew it. Private keys stay with their owners."
      >
        <FileButton multiple accept=".json" onChange={setFiles} inputProps={{ "aria-label": "Signed files" }}>
          {(props) => <Button {...props}>Publish signed files…</Button>}
        </FileButton>
      </PageHead>
      <SubNav label="Packages and trust" pages={PACKAGE_PAGES} />
      {trust.isError ? <LoadError what="What hosts trust" error={trust.error} onRetry={() => void trust.refetch()} /> : null}
      {trust.isPending ? <Loading /> : null}
      {t ? (
        <div className={classes.stack}>
          {t.problem ? (
            <Callout kind="error" title="This server cannot sign">
              {sentence(t.problem)}
            </Callout>
          ) : null}
          {t.warnings.length > 0 ? (
            <Callout kind="warning" title="Signatures expire soon">
              {t.warnings.map((w) => (
                <div key={w}>{sentence(w)}</div>
              ))}
            </Callout>
          ) : null}
          {t.published ? (
            <TrustFacts trust={t} />
          ) : (
            <Empty icon={<IconShieldLock size={32} stroke={1.5} aria-hidden />} title="No root is published">
              Until then no host installs anything. With a root several people sign together, a stolen server can ship nothing, and keys can be replaced without
              visiting hosts.
            </Empty>
          )}
          {t.root || t.targets ? (
            <div className={classes.sides}>
              {t.root ? <Role title="Root" role={t.root} what="Names the keys of all files. Its keys stay offline, each with another person." /> : null}
              {t.targets ? <Role title="Targets" role={t.targets} what="Lists the archives that hosts may install, and the lowest version." /> : null}
            </div>
          ) : null}
          <PublisherKeys />
          <Section title="Commands for the trust in use" plain flush>
            <div className={classes.tight}>
              {recipesFor(t).map((r) => (
                <div key={r.title} className={classes.set}>
                  <span>{r.title}</span>
                  <CopyBlock label={r.title} text={r.text} />
                </div>
              ))}
            </div>
          </Section>
        </div>
      ) : null}
      {files.length > 0 ? <PublishDialog files={files} onClose={() => setFiles([])} /> : null}
    </>
  );
}

function PublishDialog({ files, onClose }: { files: File[]; onClose: () => void }) {
  const publish = useChange({
    run: async (why: string) => publishTrust(await Promise.all(files.map(base64)), why),
    done: "The signed files are published",
    stale: [keys.trust, keys.packages, keys.server, keys.trails],
    after: onClose,
  });
  return (
    <Dialog
      title={`Publish ${plural(files.length, "signed file")}?`}
      confirm={`Publish ${plural(files.length, "file")}`}
      why="optional"
      busy={publish.isPending}
      error={publish.error}
      onConfirm={(why) => publish.mutate(why)}
      onClose={onClose}
    >
      <p>The server publishes all of them or none. It refuses what hosts would refuse: too few signatures, a version that is not the next, an expired file.</p>
      <ul>
        {files.map((f) => (
          <li key={f.name} className="mono">
            {f.name}
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
