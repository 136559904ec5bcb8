import { useClock } from "~/components/base/Now";
import { duration, exactWithZone } from "~/util/time";

/** The time that is left until a moment. */
export function Until({ at }: { at: string }) {
  const now = useClock();
  return (
    <time dateTime={at} title={exactWithZone(at)}>
      {Date.parse(at) <= now ? "no time" : duration(Date.parse(at) - now)}
    </time>
  );
}
