import { useEffect, useState } from "react";

/**
 * useReturnFocus gives the keyboard back to what opened a dialog once the dialog
 * is gone. Dialogs here exist only while they are open, so that each begins
 * afresh; the one of the component library returns focus only when it stays.
 */
export function useReturnFocus(): void {
  // While rendering, before the dialog takes the focus.
  const [opener] = useState(() => openerOf(document.activeElement));
  useEffect(() => () => {
    const target = opener?.isConnected ? opener : document.getElementById("main");
    target?.focus({ preventScroll: true });
  }, [opener]);
}

/** A menu goes when its item is chosen; the button that showed it stays. */
function openerOf(active: Element | null): HTMLElement | null {
  const menu = active?.closest("[role=menu]");
  const button = menu && document.getElementById(menu.getAttribute("aria-labelledby") ?? "");
  return button ?? (active instanceof HTMLElement && active !== document.body ? active : null);
}
