/** Times, in the reader's zone, whose name is always within reach. */
import { useClock } from "~/components/base/Now";
import { exactWithZone, inTable, minuteWithZone, relative } from "~/util/time";

interface Props {
  at: string | null | undefined;
  never?: string;
}

/** A relative time, exact with its zone on hover. */
export function Ago({ at, never = "never" }: Props) {
  const now = useClock();
  if (!at) return <span>{never}</span>;
  return (
    <time dateTime={at} title={exactWithZone(at)}>
      {relative(at, now)}
    </time>
  );
}

/** For tables: relative within a day, absolute beyond it. */
export function When({ at, never = "–" }: Props) {
  const now = useClock();
  if (!at) return <span>{never}</span>;
  return (
    <time dateTime={at} title={exactWithZone(at)}>
      {inTable(at, now)}
    </time>
  );
}

/** An absolute time with its zone. */
export function Exact({ at, never = "–" }: Props) {
  if (!at) return <span>{never}</span>;
  return <time dateTime={at}>{exactWithZone(at)}</time>;
}

/** A planned time with its zone; nobody plans seconds. */
export function Minute({ at }: { at: string }) {
  return (
    <time dateTime={at} title={exactWithZone(at)}>
      {minuteWithZone(at)}
    </time>
  );
}
