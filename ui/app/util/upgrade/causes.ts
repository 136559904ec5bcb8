/** A preview's causes in the order in which an operator decides about them. */
import type { PreviewCause } from "~/api/types";
import { plural } from "~/util/words";

export interface CauseGroups {
  /** Would be left out, and can be included; by the field of the request. */
  choices: { choice: "force" | "include_inactive" | "forward"; causes: PreviewCause[]; count: number }[];
  /** Would be left out whatever the order says. */
  fixed: PreviewCause[];
  /** Would be included; the text is a remark. */
  remarks: PreviewCause[];
}

/** A rollback that goes forward is refused without the field of that name, which the server does not call a choice. */
const choiceOf = (c: PreviewCause) => c.choice ?? (c.code === "forward" ? "forward" : undefined);

export function groupCauses(causes: readonly PreviewCause[] = []): CauseGroups {
  const out = causes.filter((c) => !c.will);
  const choices = (["force", "include_inactive", "forward"] as const).flatMap((choice) => {
    const mine = out.filter((c) => choiceOf(c) === choice);
    return mine.length > 0 ? [{ choice, causes: mine, count: mine.reduce((sum, c) => sum + c.count, 0) }] : [];
  });
  return { choices, fixed: out.filter((c) => !choiceOf(c)), remarks: causes.filter((c) => c.will) };
}

/** hostsText names the hosts of a cause: some of them, and how many more there are. */
export function hostsText(cause: Pick<PreviewCause, "count" | "sample">): string {
  const names = cause.sample ?? [];
  const more = cause.count - names.length;
  return names.length === 0 ? "" : `${names.join(", ")}${more > 0 ? ` and ${more.toLocaleString()} more` : ""}`;
}

/** verdictText says how many hosts an order changes; does is as in "be upgraded". */
export function verdictText(will: number, wont: number, does: string): string {
  if (will === 0) return wont === 1 ? `The host will not ${does}` : `None of the ${plural(wont, "host")} will ${does}`;
  if (wont === 0) return will === 1 ? `The host will ${does}` : `All ${plural(will, "host")} will ${does}`;
  return `${will.toLocaleString()} of ${plural(will + wont, "host")} will ${does}`;
}
