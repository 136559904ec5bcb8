/** The command palette: type a few letters, choose with the arrow keys, press Enter. */
import { Modal } from "@mantine/core";
import { IconSearch } from "@tabler/icons-react";
import { type KeyboardEvent, useEffect, useId, useState } from "react";
import { useReturnFocus } from "~/hooks/useReturnFocus";
import { movedTo } from "~/util/palette/palette";
import { plural } from "~/util/words";
import classes from "./Palette.module.css";
import { type PaletteEntry, usePaletteEntries } from "./usePaletteEntries";

const LABEL = "Find a host, a page or an action";

export function Palette({ onClose, onHelp }: { onClose: () => void; onHelp: () => void }) {
  useReturnFocus();
  const id = useId();
  const [text, setText] = useState("");
  const [chosenId, setChosenId] = useState<string | null>(null);
  const { sections, busy } = usePaletteEntries(text, onHelp);
  const all = sections.flatMap((s) => s.entries);
  // By id: an answer of the server must not move the choice to another entry.
  const chosen = Math.max(
    0,
    all.findIndex((e) => e.id === chosenId),
  );
  const optionId = (entry: PaletteEntry) => `${id}-${all.indexOf(entry)}`;
  const current = all[chosen];
  const currentId = current?.id;

  useEffect(() => {
    if (currentId !== undefined) document.getElementById(`${id}-${chosen}`)?.scrollIntoView({ block: "nearest" });
  }, [currentId, chosen, id]);

  const run = (entry: PaletteEntry | undefined) => {
    if (!entry) return;
    onClose();
    entry.run();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.nativeEvent.isComposing) return;
    const to = movedTo(event.key, chosen, all.length);
    if (event.key === "Enter") run(current);
    else if (to !== undefined) setChosenId(all[to]!.id);
    else return;
    event.preventDefault();
  };

  return (
    <Modal.Root opened onClose={onClose} size={600} yOffset="12vh" padding={0} transitionProps={{ duration: 0 }}>
      <Modal.Overlay />
      <Modal.Content aria-label={LABEL}>
        <div className={classes.line}>
          <IconSearch size={18} stroke={1.6} aria-hidden />
          <input
            // biome-ignore lint/a11y/noAutofocus: at once, since the dialog's own focus comes after the first letters
            autoFocus
            data-autofocus
            className={classes.input}
            role="combobox"
            aria-label={LABEL}
            aria-expanded={all.length > 0}
            aria-controls={`${id}-list`}
            aria-autocomplete="list"
            aria-activedescendant={current ? optionId(current) : undefined}
            placeholder={LABEL}
            autoComplete="off"
            autoCapitalize="off"
            autoCorrect="off"
            spellCheck={false}
            value={text}
            onChange={(e) => {
              setText(e.currentTarget.value);
              setChosenId(null);
            }}
            onKeyDown={onKeyDown}
          />
          <kbd aria-hidden>Esc</kbd>
        </div>
        <div className={classes.busy} data-busy={busy || undefined} aria-hidden />
        <div id={`${id}-list`} role="listbox" aria-label="Results" className={classes.list}>
          {sections.map((section) => (
            <div key={section.title} role="group" aria-labelledby={`${id}-${section.title}`}>
              <div id={`${id}-${section.title}`} className={classes.title} role="presentation">
                {section.title}
              </div>
              {section.entries.map((entry) => (
                <Option
                  key={entry.id}
                  id={optionId(entry)}
                  entry={entry}
                  chosen={entry === current}
                  onPoint={() => setChosenId(entry.id)}
                  onRun={() => run(entry)}
                />
              ))}
            </div>
          ))}
        </div>
        {all.length === 0 ? (
          <p className={classes.none}>{busy ? "Searching…" : `Nothing is called “${text.trim()}”. Try a part of a hostname, a version or a page.`}</p>
        ) : null}
        <p className="sr-only" role="status">
          {text === "" || busy ? "" : plural(all.length, "result")}
        </p>
      </Modal.Content>
    </Modal.Root>
  );
}

interface OptionProps {
  id: string;
  entry: PaletteEntry;
  chosen: boolean;
  onPoint: () => void;
  onRun: () => void;
}

function Option({ id, entry, chosen, onPoint, onRun }: OptionProps) {
  const Icon = entry.icon;
  return (
    // Movement chooses, not being under a pointer that stands still while the list changes below it.
    // biome-ignore lint/a11y/useFocusableInteractive: the focus is in the field, and aria-activedescendant names the option
    // biome-ignore lint/a11y/useKeyWithClickEvents: the field has the keys
    <div id={id} role="option" aria-selected={chosen} className={classes.option} onPointerMove={chosen ? undefined : onPoint} onClick={onRun}>
      <Icon size={16} stroke={1.6} aria-hidden />
      <span className={entry.mono ? `mono ${classes.label}` : classes.label}>{entry.label}</span>
      {entry.hint ? <span className={classes.hint}>{entry.hint}</span> : null}
      {entry.keys ? (
        <span className={classes.optionKeys} aria-hidden>
          {entry.keys.map((k, i) => (
            <kbd key={i}>{k}</kbd>
          ))}
        </span>
      ) : null}
    </div>
  );
}
