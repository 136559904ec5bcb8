/** Keyboard shortcuts of the whole page. Rows of tables hear of theirs by the event "muster:row". */
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import { SETUP, WORK } from "~/pages/nav";
import { type Intent, intentOf, PREFIX_MS, type Press } from "~/util/palette/shortcuts";

const PAGES = [...WORK, ...SETUP];
const FIELDS = "input:not([type=checkbox], [type=radio], [type=button], [type=submit]), textarea, select, [contenteditable=true]";
const LAYERS = "[role=dialog], [role=menu], [role=listbox]";
/** The search field of a page says that the slash leads to it. */
const SEARCH = '[aria-keyshortcuts="/"]';

interface Handlers {
  onPalette: () => void;
  onHelp: () => void;
}

export function useShortcuts({ onPalette, onHelp }: Handlers): void {
  const navigate = useNavigate();
  const act = (intent: Intent) => {
    switch (intent.kind) {
      case "palette":
        return onPalette();
      case "help":
        return onHelp();
      case "search": {
        const field = document.querySelector<HTMLInputElement>(SEARCH);
        if (!field) return onPalette();
        field.focus();
        return field.select();
      }
      case "go":
        return void navigate({ to: intent.to });
      case "row":
        return void window.dispatchEvent(new CustomEvent("muster:row", { detail: intent.key }));
    }
  };
  const latest = useRef(act);
  useEffect(() => {
    latest.current = act;
  });

  useEffect(() => {
    let prefixedAt = -Infinity;
    const listen = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.isComposing || (event.repeat && event.key !== "j" && event.key !== "k")) return;
      const intent = intentOf(pressOf(event), event.timeStamp - prefixedAt < PREFIX_MS, PAGES);
      prefixedAt = intent?.kind === "prefix" ? event.timeStamp : -Infinity;
      if (!intent || intent.kind === "prefix") return;
      event.preventDefault();
      latest.current(intent);
    };
    window.addEventListener("keydown", listen);
    return () => window.removeEventListener("keydown", listen);
  }, []);
}

function pressOf(event: KeyboardEvent): Press {
  const target = event.target instanceof Element ? event.target : null;
  return {
    key: event.key,
    ctrl: event.ctrlKey,
    meta: event.metaKey,
    alt: event.altKey,
    typing: target?.closest(FIELDS) != null,
    inside: target?.closest(LAYERS) != null,
  };
}
