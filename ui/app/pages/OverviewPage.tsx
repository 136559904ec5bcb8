/** The fleet at a glance: versions over time, health, what rolls out, and what waits for a person. */
import { Button, SegmentedControl } from "@mantine/core";
import { IconServerOff } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { lazy, Suspense } from "react";
import { facetsQuery, failuresQuery } from "~/api/agents";
import { attentionQuery, type SeriesWindow, seriesQuery, WINDOWS } from "~/api/overview";
import type { Facets } from "~/api/types";
import { Empty, LoadError, Loading, PageHead, Section } from "~/components/base/Page";
import { Bars } from "~/components/chart/Bars";
import { Ribbon } from "~/components/chart/Ribbon";
import { LastChanges, NeedsYou, RollingOut } from "~/components/overview/Lists";
import classes from "~/components/overview/Overview.module.css";
import { healthLines, versionLines } from "~/util/chart/series";
import { countOf, type OverviewSearch, share, sitesOf } from "~/util/overview/overview";
import { plural } from "~/util/words";

const route = getRouteApi("/shell/");

/** How many causes and sites are shown; the list of agents has all. */
const CAUSES_SHOWN = 8;
const SITES_SHOWN = 12;

const AreaChart = lazy(async () => ({ default: (await import("~/components/chart/AreaChart")).AreaChart }));

export function OverviewPage() {
  const facets = useQuery(facetsQuery(undefined, false, "health,progress,site"));
  return (
    <>
      <PageHead title="Overview" docs="server" />
      {facets.isError ? <LoadError what="The numbers of the fleet" error={facets.error} onRetry={() => void facets.refetch()} /> : null}
      {facets.data?.total === 0 ? (
        <Empty icon={<IconServerOff size={36} stroke={1.5} aria-hidden />} title="No host has enrolled yet">
          <p>Unpack an agent package on a host and run one command there. The host appears here within seconds.</p>
          <Button renderRoot={(props) => <Link {...props} to="/enroll" />}>Show the command</Button>
        </Empty>
      ) : (
        <div className={classes.stack}>
          <Tiles facets={facets.data} />
          <Versions />
          <div className={classes.grid}>
            <NeedsYou />
            <RollingOut />
            <LastChanges />
          </div>
          <div className={classes.two}>
            <Causes />
            <Sites facets={facets.data} />
          </div>
        </div>
      )}
    </>
  );
}

function Tiles({ facets }: { facets: Facets | undefined }) {
  const attention = useQuery(attentionQuery);
  const health = facets?.facets.find((f) => f.field === "health");
  const progress = facets?.facets.find((f) => f.field === "progress");
  const total = facets?.total ?? 0;
  const bad = countOf(progress, "failed") + countOf(progress, "rolled_back");
  const moving = ["sent", "accepted", "downloading", "installing", "restarting", "watching"].reduce((n, s) => n + countOf(progress, s), 0);
  const needs = attention.data?.items.length ?? 0;
  const tiles = [
    { name: total === 1 ? "host" : "hosts", value: total.toLocaleString(), search: {} },
    { name: "healthy", value: share(countOf(health, "healthy"), total), search: { health: ["healthy"] } },
    { name: "offline", value: countOf(health, "offline").toLocaleString(), search: { health: ["offline"] } },
    {
      name: "upgrading now",
      value: moving.toLocaleString(),
      search: { progress: ["sent", "accepted", "downloading", "installing", "restarting", "watching"] },
    },
    { name: "failed or rolled back", value: bad.toLocaleString(), search: { progress: ["failed", "rolled_back"] }, tone: bad > 0 ? "bad" : undefined },
  ];
  return (
    <div className={classes.tiles}>
      {tiles.map((t) => (
        <Link key={t.name} to="/agents" search={t.search} className={classes.tile}>
          <span className={classes.tileValue} data-tone={t.tone}>
            {facets ? t.value : "–"}
          </span>
          <span className={classes.tileName}>{t.name}</span>
        </Link>
      ))}
      <div className={classes.tile}>
        <span className={classes.tileValue} data-tone={needs > 0 ? "wait" : undefined}>
          {attention.data ? needs.toLocaleString() : "–"}
        </span>
        <span className={classes.tileName}>{needs === 1 ? "needs you" : "need you"}</span>
      </div>
    </div>
  );
}

function Versions() {
  const { window = "24h", lines = "versions" } = route.useSearch();
  const navigate = route.useNavigate();
  const show = (change: OverviewSearch) => void navigate({ search: (old) => ({ ...old, ...change }), replace: true });
  const series = useQuery(seriesQuery(window));
  const words: Record<SeriesWindow, string> = { "24h": "24 hours", "7d": "7 days", "30d": "30 days" };
  return (
    <Section
      title={lines === "versions" ? "Versions over time" : "Health over time"}
      aside={
        <div className={classes.switches}>
          <SegmentedControl
            aria-label="What the chart shows"
            value={lines}
            onChange={(v) => show({ lines: v === "health" ? v : undefined })}
            data={[
              { value: "versions", label: "Versions" },
              { value: "health", label: "Health" },
            ]}
          />
          <SegmentedControl
            aria-label="Time that the chart shows"
            value={window}
            onChange={(v) => show({ window: v === "24h" ? undefined : (v as SeriesWindow) })}
            data={WINDOWS.map((w) => ({ value: w, label: words[w] }))}
          />
        </div>
      }
    >
      {series.isError ? <LoadError what="The series" error={series.error} onRetry={() => void series.refetch()} /> : null}
      {series.isPending ? <Loading rows={6} /> : null}
      {series.data ? (
        <Suspense fallback={<Loading rows={6} />}>
          <AreaChart
            label={lines === "versions" ? `Hosts by version, last ${words[window]}` : `Hosts by health, last ${words[window]}`}
            times={series.data.times}
            lines={lines === "versions" ? versionLines(series.data) : healthLines(series.data)}
            empty="The server takes a sample every five minutes; the chart begins with the second one."
          />
        </Suspense>
      ) : null}
    </Section>
  );
}

function Causes() {
  const failures = useQuery(failuresQuery());
  const causes = failures.data?.causes ?? [];
  return (
    <Section title="Failures by cause">
      {failures.isError ? <LoadError what="Failures" error={failures.error} onRetry={() => void failures.refetch()} /> : null}
      {failures.isPending ? <Loading rows={3} /> : null}
      {failures.data && causes.length === 0 ? <Empty title="No host’s last upgrade failed" /> : null}
      <Bars
        label="Failures by cause"
        items={causes.slice(0, CAUSES_SHOWN).map((c) => ({
          key: `${c.code} ${c.state} ${c.version}`,
          label: (
            <>
              {c.text} <span className="mono">{c.version}</span>
            </>
          ),
          hint: c.sample,
          count: c.count,
          countText: plural(c.count, "host"),
          link: { to: "/agents", search: { kuery: c.kuery } },
        }))}
      />
    </Section>
  );
}

function Sites({ facets }: { facets: Facets | undefined }) {
  const sites = sitesOf(facets?.facets.find((f) => f.field === "site"));
  return (
    <Section title="Health by site">
      {facets ? null : <Loading rows={3} />}
      <Ribbon
        label="Health by site, those with most trouble first"
        rows={sites
          .slice(0, SITES_SHOWN)
          .map((s) => ({ key: s.site, label: s.site || "No site", counts: Object.fromEntries(s.health), link: { to: "/agents", search: { kuery: s.kuery } } }))}
      />
      {sites.length > SITES_SHOWN ? (
        <p className={classes.quiet}>
          The {SITES_SHOWN} sites with most trouble, of {sites.length.toLocaleString()}.
        </p>
      ) : null}
    </Section>
  );
}
