/** The text area of the YAML editor, by CodeMirror. It is apart, since the form and the preview are shown without it. */
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { HighlightStyle, indentService, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
import { Annotation, EditorState } from "@codemirror/state";
import { EditorView, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { getNonce } from "get-nonce";
import { type RefObject, useEffect, useRef } from "react";
import { flushSync } from "react-dom";
import type { Fault } from "~/util/plan/planYaml";
import classes from "./YamlEditor.module.css";

interface Props {
  text: string;
  /** Those that are marked at their lines. */
  faults: readonly Fault[];
  onChange: (text: string) => void;
  label: string;
  /** The id of the list of errors. */
  describedBy?: string;
  view: RefObject<EditorView | null>;
}

/** Of a change that comes from outside. */
const outside = Annotation.define<true>();

// Colors mean states, so the parts of YAML differ by weight and grey.
const look = HighlightStyle.define([
  { tag: tags.propertyName, fontWeight: "600" },
  { tag: tags.comment, color: "var(--muted)", fontStyle: "italic" },
  { tag: [tags.punctuation, tags.separator, tags.squareBracket, tags.brace], color: "var(--muted)" },
]);

export default function YamlArea(props: Props) {
  const { text, faults, view } = props;
  const box = useRef<HTMLDivElement>(null);
  const latest = useRef(props);

  // Before the effects below, which let the editor read its attributes.
  useEffect(() => {
    latest.current = props;
  });

  useEffect(() => {
    const made = new EditorView({
      parent: box.current!,
      doc: latest.current.text,
      extensions: [
        lineNumbers(),
        lintGutter(),
        history(),
        yaml(),
        EditorState.tabSize.of(2),
        syntaxHighlighting(look),
        EditorView.cspNonce.of(getNonce() ?? ""),
        EditorView.domEventHandlers({ beforeinput: replace }),
        indentService.of((context, at) => indentAfter(context.lineAt(at, -1).text, context.unit)),
        // Tab is not bound: it moves the focus, as everywhere.
        keymap.of([...defaultKeymap, ...historyKeymap, ...lintKeymap]),
        EditorView.contentAttributes.of(() => ({
          tabindex: "0", // axe does not know that what is edited can be focused
          "aria-label": latest.current.label,
          "aria-invalid": String(latest.current.faults.length > 0),
          ...(latest.current.describedBy && { "aria-describedby": latest.current.describedBy }),
        })),
        EditorView.updateListener.of((update) => {
          if (!update.docChanged || update.transactions.some((t) => t.annotation(outside))) return;
          // At once, or a later render would bring an earlier text back.
          flushSync(() => latest.current.onChange(update.state.doc.toString()));
        }),
      ],
    });
    view.current = made;
    return () => {
      view.current = null;
      made.destroy();
    };
  }, [view]);

  useEffect(() => {
    const { state } = view.current!;
    if (state.doc.toString() !== text) view.current!.dispatch({ changes: { from: 0, to: state.doc.length, insert: text }, annotations: outside.of(true) });
  }, [text, view]);

  useEffect(() => {
    const { state } = view.current!;
    view.current!.dispatch(setDiagnostics(state, marksOf(state, faults)));
  }, [faults, view]);

  return <div className={classes.editor} ref={box} />;
}

/**
 * Typed text replaces a selection here. Chromium would write the style of what was selected into the text, which the
 * Content-Security-Policy reports, before the editor reads the text and removes the style.
 */
function replace(event: InputEvent, view: EditorView): boolean {
  if (event.inputType !== "insertText" || event.data === null || view.state.selection.main.empty) return false;
  event.preventDefault();
  view.dispatch(view.state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true });
  return true;
}

/** A new line is indented as the one before it, and below a key. */
const indentAfter = (line: string, unit: number): number => /^\s*/.exec(line)![0].length + (/:\s*$/.test(line) ? unit : 0);

/** The whole line of each error, without its indentation. */
function marksOf(state: EditorState, faults: readonly Fault[]): Diagnostic[] {
  return faults
    .filter((f) => f.line > 0 && f.line <= state.doc.lines)
    .map((f) => {
      const line = state.doc.line(f.line);
      return { from: line.from + line.text.search(/\S|$/), to: line.to, severity: "error", message: f.text.split("\n")[0]! };
    });
}
