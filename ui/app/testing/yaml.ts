import { EditorView } from "@codemirror/view";
import { act } from "react";
import { until } from "./page";

/** The editor of YAML with this name, which is loaded with the first one. */
async function yamlEditor(name: string): Promise<EditorView> {
  const found = () => document.querySelector<HTMLElement>(`[role=textbox][aria-label="${name}"]`);
  await until(() => found() !== null, `the editor ${name}`);
  return EditorView.findFromDOM(found()!)!;
}

export const yamlText = async (name: string): Promise<string> => (await yamlEditor(name)).state.doc.toString();

export async function writeYaml(name: string, text: string): Promise<void> {
  const view = await yamlEditor(name);
  await act(async () => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } }));
}
