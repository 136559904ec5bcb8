/** The keyboard shortcuts: which key means what, and the list of all of them. */
import type { RowKey } from "~/util/rows";

/** A key that was pressed, and where. */
export interface Press {
  key: string;
  ctrl: boolean;
  meta: boolean;
  alt: boolean;
  /** In a field, where keys are text. */
  typing: boolean;
  /** In a dialog or a menu, which has keys of its own. */
  inside: boolean;
}

export type Intent =
  | { kind: "palette" }
  | { kind: "search" }
  | { kind: "help" }
  /** The next key names a page. */
  | { kind: "prefix" }
  | { kind: "go"; to: string }
  | { kind: "row"; key: RowKey };

/** A page that g and a key lead to. */
export interface KeyedPage {
  to: string;
  label: string;
  key: string;
}

/** How long the key of a page may follow g. */
export const PREFIX_MS = 1500;

const rowKeys: readonly string[] = ["j", "k", "x", "e"] satisfies RowKey[];

/** intentOf returns what a key means here, or undefined if it means nothing. prefixed: g came before. */
export function intentOf(press: Press, prefixed: boolean, pages: readonly KeyedPage[]): Intent | undefined {
  if ((press.ctrl || press.meta) && !press.alt && press.key.toLowerCase() === "k") return { kind: "palette" };
  if (press.ctrl || press.meta || press.alt || press.typing || press.inside) return undefined;
  if (prefixed) {
    const page = pages.find((p) => p.key === press.key);
    if (page) return { kind: "go", to: page.to };
  }
  if (press.key === "/") return { kind: "search" };
  if (press.key === "?") return { kind: "help" };
  if (press.key === "g") return { kind: "prefix" };
  return rowKeys.includes(press.key) ? { kind: "row", key: press.key as RowKey } : undefined;
}

export interface ShortcutGroup {
  title: string;
  /** Keys that are pressed one after the other. */
  items: { keys: readonly string[]; does: string }[];
}

/** shortcutGroups is what the dialog of shortcuts lists. */
export function shortcutGroups(pages: readonly KeyedPage[], mac: boolean): ShortcutGroup[] {
  return [
    {
      title: "Everywhere",
      items: [
        { keys: [paletteKeys(mac)], does: "Find a host, a page or an action" },
        { keys: ["/"], does: "Search on this page" },
        { keys: ["?"], does: "Show these shortcuts" },
        { keys: ["Esc"], does: "Close what is open" },
      ],
    },
    {
      title: "In tables",
      items: [
        { keys: ["j"], does: "Next row" },
        { keys: ["k"], does: "Previous row" },
        { keys: ["x"], does: "Select the row" },
        { keys: ["e"], does: "Expand the row" },
        { keys: ["Enter"], does: "Open the row" },
      ],
    },
    { title: "Go to", items: pages.map((p) => ({ keys: ["g", p.key], does: p.label })) },
  ];
}

export const paletteKeys = (mac: boolean) => (mac ? "⌘ K" : "Ctrl K");
