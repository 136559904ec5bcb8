import { countdownText } from "~/util/rollout/rolloutText";
import { exactWithZone } from "~/util/time";
import { useClock } from "../base/Now";

/** The time that is left of a wait: as a clock within the hour. */
export function Countdown({ until }: { until: string }) {
  const now = useClock();
  return (
    <time dateTime={until} title={exactWithZone(until)}>
      {Date.parse(until) <= now ? "any moment" : countdownText(until, now)}
    </time>
  );
}
