import { useQuery } from "@tanstack/react-query";
import { createContext, type ReactNode, useContext } from "react";
import { serverQuery } from "~/api/queries";
import { useNow } from "~/hooks/useNow";
import { exact, relative } from "~/util/time";

const Context = createContext(0);

/** A difference this small between the two clocks may be the latency of the answer. */
const SKEW_MS = 2_000;

/**
 * The server's clock, for the whole page: a host last seen "3 minutes ago" must not depend on the
 * operator's laptop. A tick redraws only relative times.
 */
export function NowProvider({ children }: { children: ReactNode }) {
  const { data, dataUpdatedAt } = useQuery(serverQuery);
  const skew = data ? Date.parse(data.now) - dataUpdatedAt : 0;
  return <Context value={useNow() + (Math.abs(skew) > SKEW_MS ? skew : 0)}>{children}</Context>;
}

export function useClock(): number {
  return useContext(Context);
}

/** A relative time, exact on hover. */
export function Ago({ at, never = "never" }: { at: string | null | undefined; never?: string }) {
  const now = useClock();
  if (!at) return <span>{never}</span>;
  return (
    <time dateTime={at} title={exact(at)}>
      {relative(at, now)}
    </time>
  );
}
