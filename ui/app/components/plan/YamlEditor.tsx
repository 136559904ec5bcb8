import { type KeyboardEvent, useId, useRef } from "react";
import type { Fault } from "~/util/planYaml";
import { sentenceAbout } from "~/util/words";
import { Callout } from "../Callout";
import classes from "./YamlEditor.module.css";

interface Props {
  text: string;
  faults: Fault[];
  onChange: (text: string) => void;
  /** What is written, such as plan. */
  what?: string;
}

/** Must be the line height of the style sheet. */
const LINE_PX = 20;

/** YAML with line numbers. All errors are listed below it and marked at their lines; what is only missing is not. */
export function YamlEditor({ text, faults, onChange, what = "plan" }: Props) {
  const area = useRef<HTMLTextAreaElement>(null);
  const gutter = useRef<HTMLDivElement>(null);
  const id = useId();
  const lines = text.split("\n").length;
  const shown = faults.filter((f) => !f.missing);
  const wrong = new Set(shown.map((f) => f.line));

  const goTo = (line: number) => {
    const el = area.current;
    if (!el) return;
    const from =
      text
        .split("\n")
        .slice(0, line - 1)
        .join("\n").length + (line > 1 ? 1 : 0);
    const end = text.indexOf("\n", from);
    el.focus();
    el.setSelectionRange(from, end < 0 ? text.length : end);
    el.scrollTop = Math.max(0, (line - 5) * LINE_PX);
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
      <div className={classes.editor}>
        <div className={classes.gutter} ref={gutter} aria-hidden>
          {Array.from({ length: lines }, (_, i) => (
            <div key={i} data-fault={wrong.has(i + 1) || undefined}>
              {i + 1}
            </div>
          ))}
        </div>
        <textarea
          ref={area}
          className={classes.text}
          aria-label={`${what[0]!.toUpperCase()}${what.slice(1)} in YAML`}
          aria-invalid={shown.length > 0 || undefined}
          aria-describedby={shown.length > 0 ? id : undefined}
          spellCheck={false}
          autoCapitalize="off"
          autoComplete="off"
          wrap="off"
          value={text}
          onChange={(e) => onChange(e.currentTarget.value)}
          onKeyDown={indent}
          onScroll={(e) => {
            if (gutter.current) gutter.current.scrollTop = e.currentTarget.scrollTop;
          }}
        />
      </div>
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

/** Enter keeps the indentation. Tab moves the focus, as everywhere. */
function indent(e: KeyboardEvent<HTMLTextAreaElement>): void {
  if (e.key !== "Enter" || e.shiftKey || e.nativeEvent.isComposing) return;
  const el = e.currentTarget;
  const line = el.value.slice(0, el.selectionStart).split("\n").pop() ?? "";
  const space = /^\s*/.exec(line)![0] + (/:\s*$/.test(line) ? "  " : "");
  if (space === "") return;
  e.preventDefault();
  // The browser's own command keeps undo working; setting the value would not.
  document.execCommand("insertText", false, `\n${space}`);
}
