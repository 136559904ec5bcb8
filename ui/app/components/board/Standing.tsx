/** Why a rollout is paused. */
import { IconPlayerPause } from "@tabler/icons-react";
import type { Rollout } from "~/api/types";
import { isGate } from "~/util/rollout/rollout";
import { stopTitle } from "~/util/rollout/rolloutText";
import { plural, sentenceAbout } from "~/util/words";
import { Callout } from "../base/Callout";
import { Ago } from "../base/Time";

export function Standing({ rollout: r }: { rollout: Rollout }) {
  if (r.state !== "paused" || !r.stop) return null;
  const gate = isGate(r.stop.kind);
  return (
    <Callout kind={gate ? "error" : "warning"} icon={gate ? undefined : <IconPlayerPause size={18} aria-hidden />} title={stopTitle[r.stop.kind]}>
      <div>
        {sentenceAbout(r.stop.text, r.stop.by)} {r.stop.by === "muster" ? "It paused by itself" : `${r.stop.by} paused it`} <Ago at={r.stop.at} />, in batch{" "}
        {(r.stop.batch + 1).toLocaleString()}.
        {r.stop.withdrawn > 0 ? ` ${plural(r.stop.withdrawn, "order")} ${r.stop.withdrawn === 1 ? "was" : "were"} withdrawn.` : ""}
      </div>
      {r.commands?.some((c) => c.name === "resume" && c.needs_reason) ? <div>Look at the failures before you resume it: a reason is required.</div> : null}
    </Callout>
  );
}
