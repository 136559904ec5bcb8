/** Why an agent runs its version: the server's chain of reasons, as the page shows it. */
import type { Explanation } from "~/api/types";
import { withoutIds } from "~/util/prose";

const plain = (text: string): string => withoutIds(text).replace(/^it /i, "").replace(/\.$/, "").toLowerCase();

/** chainOf leaves out reasons that the summary or an earlier reason contains word for word. */
export function chainOf(e: Pick<Explanation, "summary" | "chain">): Explanation["chain"] {
  const said = [plain(e.summary)];
  return e.chain.filter((c) => {
    const text = plain(c.text);
    // What has a time or a heading of its own is more than a repetition.
    const repeats = said.some((s) => s.includes(text)) && !c.until;
    said.push(text);
    return !repeats;
  });
}
