import { Combobox, TextInput, type TextInputProps, useCombobox } from "@mantine/core";
import { type KeyboardEvent, type RefObject, useEffect, useId, useLayoutEffect, useRef, useState } from "react";
import type { QuerySuggestion } from "~/api/types";
import { useSuggestions } from "~/hooks/useSuggestions";
import { accepted } from "~/util/kql";
import classes from "./KqlInput.module.css";

interface Props extends Omit<TextInputProps, "value" | "onChange" | "onBlur" | "ref" | "classNames"> {
  text: string;
  onText: (text: string) => void;
  onLeave?: () => void;
  inputRef?: RefObject<HTMLInputElement | null>;
}

/** No suggestion is chosen: Enter does what it does in any other field. */
const NONE = -1;

const kindWord: Record<QuerySuggestion["kind"], string> = { field: "field", operator: "operator", value: "value", conjunction: "word" };

/** A field for KQL. Suggestions come from the server, which parses the language. */
export function KqlInput({ text, onText, onLeave, inputRef, ...rest }: Props) {
  const own = useRef<HTMLInputElement>(null);
  const input = inputRef ?? own;
  const [at, setAt] = useState(text.length);
  const [open, setOpen] = useState(false);
  const [chosen, setChosen] = useState(NONE);
  // The text may have become shorter from outside.
  const cursor = Math.min(at, text.length);
  const { items, fresh } = useSuggestions({ text, cursor }, open);
  const combobox = useCombobox();
  const listId = useId();
  const optionId = (i: number) => `${listId}-${i}`;

  const put = useRef<number | null>(null);
  useLayoutEffect(() => {
    if (put.current === null) return;
    input.current?.setSelectionRange(put.current, put.current);
    put.current = null;
  });

  useEffect(() => {
    if (open && chosen !== NONE) document.getElementById(`${listId}-${chosen}`)?.scrollIntoView({ block: "nearest" });
  }, [open, chosen, listId]);

  const write = (next: string, to: number) => {
    setAt(to);
    setChosen(NONE);
    setOpen(true);
    onText(next);
  };
  const close = () => {
    setOpen(false);
    setChosen(NONE);
  };
  const accept = (item: QuerySuggestion | undefined) => {
    if (!item || !fresh) return;
    const next = accepted(text, item);
    put.current = next.cursor;
    write(next.text, next.cursor);
  };

  const shown = open && items.length > 0;
  const pointed = shown && chosen < items.length ? chosen : NONE;

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.nativeEvent.isComposing) return;
    switch (event.key) {
      case "ArrowDown":
      case "ArrowUp": {
        event.preventDefault();
        if (!open) setOpen(true);
        // One position more than there are items: the text itself.
        const places = Math.max(items.length, 1) + 1;
        const step = event.key === "ArrowDown" ? 1 : places - 1;
        setChosen(((pointed + 1 + step) % places) - 1);
        return;
      }
      case "Enter":
        if (pointed === NONE) {
          close();
          return;
        }
        event.preventDefault();
        accept(items[pointed]);
        return;
      case "Tab":
        if (pointed === NONE || event.shiftKey || !fresh) return; // Tab moves on: the keyboard is not trapped here
        event.preventDefault();
        accept(items[pointed]);
        return;
      case "Escape":
        if (!open) return;
        event.preventDefault();
        event.stopPropagation();
        close();
    }
  };

  return (
    <Combobox
      store={{ ...combobox, dropdownOpened: shown }}
      position="bottom-start"
      transitionProps={{ duration: 0 }}
      withinPortal={false}
      keepMounted={false}
      middlewares={{ flip: false, shift: true }}
      onOptionSubmit={(v) => accept(items[Number(v)])}
    >
      <Combobox.DropdownTarget>
        <TextInput
          {...rest}
          ref={input}
          classNames={{ input: "mono" }}
          role="combobox"
          aria-expanded={shown}
          aria-controls={shown ? listId : undefined}
          aria-autocomplete="list"
          aria-activedescendant={pointed === NONE ? undefined : optionId(pointed)}
          autoComplete="off"
          autoCapitalize="off"
          autoCorrect="off"
          spellCheck={false}
          value={text}
          onChange={(e) => write(e.currentTarget.value, e.currentTarget.selectionStart ?? e.currentTarget.value.length)}
          onSelect={(e) => setAt(e.currentTarget.selectionStart ?? 0)}
          onClick={() => setOpen(true)}
          onBlur={() => {
            close();
            onLeave?.();
          }}
          onKeyDown={onKeyDown}
        />
      </Combobox.DropdownTarget>
      <Combobox.Dropdown className={classes.dropdown}>
        <Combobox.Options id={listId} aria-label="Suggestions" className={classes.options} data-stale={!fresh || undefined}>
          {items.map((item, i) => (
            <Combobox.Option
              key={`${item.kind} ${item.text}`}
              value={String(i)}
              id={optionId(i)}
              selected={i === pointed}
              aria-selected={i === pointed}
              className={classes.option}
            >
              <span className={classes.kind} data-kind={item.kind}>
                {kindWord[item.kind]}
              </span>
              <span className={`mono ${classes.text}`}>{item.text.trim()}</span>
              {item.description ? <span className={classes.description}>{item.description}</span> : null}
            </Combobox.Option>
          ))}
        </Combobox.Options>
        <div className={classes.keys} aria-hidden>
          <kbd>↓</kbd> <kbd>↑</kbd> choose, <kbd>Tab</kbd> or <kbd>Enter</kbd> accept, <kbd>Esc</kbd> close
        </div>
      </Combobox.Dropdown>
    </Combobox>
  );
}
