/** The health of the hosts that run the rollout's version against that of all other hosts, over the last day. */
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useMemo } from "react";
import { seriesQuery } from "~/api/overview";
import { Loading, Section } from "~/components/base/Page";
import { againstTheRest, hasBoth } from "~/util/board/versionHealth";
import { share } from "~/util/overview/overview";

const LineChart = lazy(async () => ({ default: (await import("~/components/chart/LineChart")).LineChart }));

const percent = (n: number) => share(n, 100);

export function VersionHealth({ version }: { version: string }) {
  const { data } = useQuery(seriesQuery("24h"));
  const lines = useMemo(() => (data ? againstTheRest(data, version) : []), [data, version]);
  if (!data || !hasBoth(lines)) return null;
  return (
    <Section title={`Healthy hosts: ${version} against the rest`} plain>
      <Suspense fallback={<Loading rows={4} />}>
        <LineChart
          label={`Share of healthy hosts, ${version} against all others, last 24 hours`}
          times={data.times}
          lines={lines}
          most={100}
          format={percent}
          height={150}
        />
      </Suspense>
    </Section>
  );
}
