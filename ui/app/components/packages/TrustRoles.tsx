/** The files that people sign, and those that the server signs. */
import { useQuery } from "@tanstack/react-query";
import { packagesQuery } from "~/api/queries";
import type { Trust, TrustRole } from "~/api/types";
import { Badge } from "~/components/base/Badge";
import { CopyIcon } from "~/components/base/CopyBlock";
import { type Column, DataTable } from "~/components/base/DataTable";
import { useClock } from "~/components/base/Now";
import { Facts, Section } from "~/components/base/Page";
import { Exact } from "~/components/base/Time";
import classes from "~/pages/Admin.module.css";
import { type Expiry, expiryOf, onlineExpiryOf, thresholdText } from "~/util/packages/trust";
import { plural } from "~/util/words";

const columns: Column<TrustRole["keys"][number]>[] = [
  { id: "owner", header: "Owner", cell: (k) => <strong>{k.name || "unnamed"}</strong> },
  {
    id: "id",
    header: "Key",
    cell: (k) => (
      <span className={classes.copy}>
        <span className="mono" title={k.id}>
          {k.id.slice(0, 16)}…
        </span>
        <CopyIcon text={k.public_key} label={`Copy the public key of ${k.name || k.id}`} />
      </span>
    ),
  },
  { id: "signed", header: "This version", cell: (k) => (k.signed ? <Badge tone="ok">Signed</Badge> : <Badge tone="away">Not signed</Badge>) },
];

export function Role({ title, role, what }: { title: string; role: TrustRole; what: string }) {
  return (
    <Section title={title} aside={<ExpiryBadge expiry={expiryOf(role.expires, useClock())} />}>
      <div className={classes.tight}>
        <p className={classes.note}>{what}</p>
        <Facts
          rows={[
            [
              "File",
              <span key="f" className="mono">
                {role.file}
              </span>,
            ],
            ["Signatures", thresholdText(role)],
            ["Expires", <Exact key="e" at={role.expires} />],
          ]}
        />
        <DataTable label={`Keys of the ${title.toLowerCase()}`} columns={columns} rows={role.keys} rowId={(k) => k.id} />
      </div>
    </Section>
  );
}

const ExpiryBadge = ({ expiry }: { expiry: Expiry }) => (
  <Badge tone={expiry.tone} strong={expiry.tone !== "ok"}>
    {expiry.text}
  </Badge>
);

export function TrustFacts({ trust: t }: { trust: Trust }) {
  const now = useClock();
  const packages = useQuery(packagesQuery);
  const withheld = packages.data?.filter((p) => p.withheld).length ?? 0;
  return (
    <Section title="In force">
      <Facts
        rows={[
          [
            "Root for new hosts",
            t.trust_root ? (
              <span key="r" className={classes.copy}>
                <span className="mono">{t.trust_root}</span>
                <CopyIcon text={t.trust_root} label="Copy the digest of the root" />
              </span>
            ) : null,
          ],
          [
            "Lowest version",
            t.floor ? (
              <span key="f" className="mono">
                {t.floor}
              </span>
            ) : (
              "none: hosts go back to any signed version"
            ),
          ],
          ["Signed archives", `${t.target_count.toLocaleString()}${withheld > 0 ? `, ${plural(withheld, "published archive")} withheld` : ""}`],
          ["Snapshot", t.snapshot ? <OnlineRole key="s" version={t.snapshot.version} expiry={onlineExpiryOf(t.snapshot.expires, now)} /> : null],
          ["Timestamp", t.timestamp ? <OnlineRole key="t" version={t.timestamp.version} expiry={onlineExpiryOf(t.timestamp.expires, now)} /> : null],
          [
            "Keys of the server",
            t.online_keys.map((k) => (
              <div key={k} className="mono">
                {k}
              </div>
            )),
          ],
        ]}
      />
    </Section>
  );
}

/** The server renews these itself. */
const OnlineRole = ({ version, expiry }: { version: number; expiry: Expiry }) => (
  <span className={classes.inline}>
    version {version.toLocaleString()}, renewed by the server <Badge tone={expiry.tone}>{expiry.text}</Badge>
  </span>
);
