import { useEffect, useState } from "react";

/**
 * useReturnFocus returns the focus to what opened a dialog once the dialog is closed. Dialogs here
 * are mounted only while they are open, so that each starts afresh; Mantine's dialog returns the
 * focus only if it stays mounted.
 */
export function useReturnFocus(): void {
  // During render, before the dialog takes the focus.
  const [opener] = useState(() => openerOf(document.activeElement));
  useEffect(
    () => () => {
      const target = opener?.isConnected ? opener : document.getElementById("main");
      target?.focus({ preventScroll: true });
    },
    [opener],
  );
}

/** A menu closes when an item is chosen; the button that opened it stays. */
function openerOf(active: Element | null): HTMLElement | null {
  const menu = active?.closest("[role=menu]");
  const button = menu && document.getElementById(menu.getAttribute("aria-labelledby") ?? "");
  return button ?? (active instanceof HTMLElement && active !== document.body ? active : null);
}
