/** A sentence of the server, with its commands in the typeface of code. */
import { Fragment } from "react";
import { pieces } from "~/util/prose";

export function Prose({ children }: { children: string }) {
  return (
    <>
      {pieces(children).map((p, i) =>
        p.code ? (
          <code key={i} className="mono">
            {p.text}
          </code>
        ) : (
          <Fragment key={i}>{p.text}</Fragment>
        ),
      )}
    </>
  );
}
