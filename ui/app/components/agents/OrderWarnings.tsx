/** What the server says about an order before it is given, such as the active rollouts that go on with its hosts. */
import { withoutIds } from "~/util/prose";
import { sentence } from "~/util/words";
import { Callout } from "../base/Callout";

export function OrderWarnings({ of }: { of: { warnings: readonly string[] } | undefined }) {
  return (
    <>
      {of?.warnings.map((w) => (
        <Callout key={w} kind="warning">
          {sentence(withoutIds(w))}
        </Callout>
      ))}
    </>
  );
}
