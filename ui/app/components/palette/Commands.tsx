/** The keyboard's part of the frame: the button and the keys that open the command palette and the list of shortcuts. */
import { IconSearch } from "@tabler/icons-react";
import { useState } from "react";
import { useShortcuts } from "~/hooks/useShortcuts";
import { paletteKeys } from "~/util/palette/shortcuts";
import { Palette } from "./Palette";
import classes from "./Palette.module.css";
import { ShortcutsDialog } from "./ShortcutsDialog";

/** Apple's keyboards have the command key in the place of Ctrl. */
export const isMac = (): boolean => /Mac|iPhone|iPad/.test(navigator.userAgent);

export function Commands() {
  const [open, setOpen] = useState<"palette" | "help" | null>(null);
  useShortcuts({ onPalette: () => setOpen((old) => (old === "palette" ? null : "palette")), onHelp: () => setOpen("help") });
  return (
    <>
      <button
        type="button"
        className={classes.trigger}
        aria-label="Find a host, a page or an action"
        aria-keyshortcuts="Control+K Meta+K"
        onClick={() => setOpen("palette")}
      >
        <IconSearch size={14} stroke={1.8} aria-hidden />
        <span className={classes.triggerText}>Find</span>
        <kbd className={classes.triggerText}>{paletteKeys(isMac())}</kbd>
      </button>
      {open === "palette" ? <Palette onClose={() => setOpen(null)} onHelp={() => setOpen("help")} /> : null}
      {open === "help" ? <ShortcutsDialog onClose={() => setOpen(null)} /> : null}
    </>
  );
}
