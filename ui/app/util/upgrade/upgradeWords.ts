/** The words of the upgrade dialog: its question, its button, and the message after it. */

import { plural } from "~/util/words";
import type { UpgradeForm } from "./upgradeForm";

interface Input {
  form: Pick<UpgradeForm, "stage" | "later">;
  version: string;
  component?: string;
  /** Back to a version that the host has kept. */
  back: boolean;
  /** The name of the only host. */
  host?: string;
  count: number;
  /** Of the preview. */
  will?: number;
}

export function upgradeWords({ form, version, component, back, host, count, will = count }: Input) {
  const verb = form.stage ? "stage" : back ? "roll back" : "upgrade";
  const does = form.stage ? "stage it" : back ? "be rolled back" : "be upgraded";
  const Verb = verb[0]!.toUpperCase() + verb.slice(1);
  const on = component ? `${component} on ` : "";
  const to = version === "" ? "" : ` to ${version}`;
  const who = host ?? plural(count, "host");
  const whom = host ?? plural(will, "host");
  if (form.stage) {
    const what = `${component ? `${component} ` : ""}${version || "a version"}`;
    return { verb, does, title: `Stage ${what} on ${who}?`, confirm: `Stage on ${whom}`, done: `Staging ${what} on ${whom}` };
  }
  return {
    verb,
    does,
    title: `${Verb} ${on}${who}${to}?`,
    confirm: form.later ? `Schedule for ${on}${whom}` : `${Verb} ${on}${whom}`,
    done: form.later ? `${back ? "Rollback" : "Upgrade"} of ${on}${whom}${to} is scheduled` : `${back ? "Rolling back" : "Upgrading"} ${on}${whom}${to}`,
  };
}
