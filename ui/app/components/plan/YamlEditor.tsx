import type { EditorView } from "@codemirror/view";
import { lazy, Suspense, useId, useMemo, useRef } from "react";
import type { Fault } from "~/util/plan/planYaml";
import { sentenceAbout } from "~/util/words";
import { Callout } from "../base/Callout";
import { Loading } from "../base/Page";
import classes from "./YamlEditor.module.css";

const YamlArea = lazy(() => import("./YamlArea"));

interface Props {
  text: string;
  faults: Fault[];
  onChange: (text: string) => void;
  /** What is written, such as plan. */
  what?: string;
}

/** YAML with line numbers. All errors are listed above it and marked at their lines; what is only missing is not. */
export function YamlEditor({ text, faults, onChange, what = "plan" }: Props) {
  const area = useRef<EditorView>(null);
  const id = useId();
  const shown = useMemo(() => faults.filter((f) => !f.missing), [faults]);

  const goTo = (number: number) => {
    const view = area.current;
    if (!view) return;
    const line = view.state.doc.line(Math.min(number, view.state.doc.lines));
    view.dispatch({ selection: { anchor: line.from, head: line.to }, scrollIntoView: true });
    view.focus();
  };

  return (
    <div className={classes.column}>
      {shown.length > 0 ? (
        <div id={id}>
          <Callout kind="error" title={shown.length === 1 ? `The ${what} has an error` : `The ${what} has ${shown.length} errors`}>
            <ul className={classes.faults}>
              {shown.map((f) => (
                <li key={`${f.line} ${f.text}`}>
                  {f.line > 0 ? (
                    <>
                      <button type="button" className={classes.goto} onClick={() => goTo(f.line)}>
                        Line {f.line}
                      </button>
                      :{" "}
                    </>
                  ) : null}
                  <FaultText fault={f} />
                </li>
              ))}
            </ul>
          </Callout>
        </div>
      ) : null}
      <Suspense fallback={<Loading rows={8} />}>
        <YamlArea
          text={text}
          faults={shown}
          onChange={onChange}
          label={`${what[0]!.toUpperCase()}${what.slice(1)} in YAML`}
          describedBy={shown.length > 0 ? id : undefined}
          view={area}
        />
      </Suspense>
    </div>
  );
}

/** The lines after the first mark a position in a query. */
function FaultText({ fault: f }: { fault: Fault }) {
  const [first, ...drawn] = f.text.split("\n");
  return (
    <>
      {sentenceAbout(first!, f.field)}
      {drawn.length > 0 ? (
        <pre className={classes.place} tabIndex={0} role="group" aria-label="Where the query is wrong">
          {drawn.join("\n")}
        </pre>
      ) : null}
    </>
  );
}
