import { ActionIcon, CloseButton, Combobox, Popover, Text, TextInput, Tooltip, UnstyledButton, useCombobox } from "@mantine/core";
import { IconHelp, IconSearch } from "@tabler/icons-react";
import { useEffect, useId, useLayoutEffect, useRef, useState, type KeyboardEvent } from "react";
import { useSuggestions } from "~/hooks/useSuggestions";
import type { QuerySuggestion } from "~/api/types";
import { accepted, EXAMPLES, faultOf, type Written } from "~/util/kql";
import classes from "./QueryBar.module.css";

interface Props {
  /** The current query; undefined if there is none. */
  value?: string;
  /** The server's error for it. */
  fault?: string;
  onSearch: (query: string | undefined) => void;
}

/** No suggestion is chosen: Enter searches. */
const NONE = -1;

const kindWord: Record<QuerySuggestion["kind"], string> = { field: "field", operator: "operator", value: "value", conjunction: "word" };

/**
 * The search bar for KQL. The text is a draft until Enter: an incomplete query is mostly invalid.
 * Suggestions come from the server, which parses the language.
 */
export function QueryBar({ value = "", fault, onSearch }: Props) {
  const input = useRef<HTMLInputElement>(null);
  const [written, setWritten] = useState<Written>({ text: value, cursor: value.length });
  const [open, setOpen] = useState(false);
  const [chosen, setChosen] = useState(NONE);
  const { items, fresh } = useSuggestions(written, open);
  const combobox = useCombobox();
  const listId = useId();
  const faultId = useId();
  const optionId = (i: number) => `${listId}-${i}`;

  // Back, forward and links change the query; the draft follows.
  const [searched, setSearched] = useState(value);
  if (searched !== value) {
    setSearched(value);
    setWritten({ text: value, cursor: value.length });
    setOpen(false);
  }

  const put = useRef<number | null>(null);
  useLayoutEffect(() => {
    if (put.current === null) return;
    input.current?.setSelectionRange(put.current, put.current);
    put.current = null;
  }, [written]);

  useEffect(() => {
    if (open && chosen !== NONE) document.getElementById(`${listId}-${chosen}`)?.scrollIntoView({ block: "nearest" });
  }, [open, chosen, listId]);

  useSlash(input);

  const write = (next: Written) => {
    setWritten(next);
    setChosen(NONE);
    setOpen(true);
  };
  const accept = (item: QuerySuggestion | undefined) => {
    if (!item || !fresh) return;
    const next = accepted(written.text, item);
    put.current = next.cursor;
    write(next);
  };
  const search = (text = written.text) => {
    setOpen(false);
    setChosen(NONE);
    onSearch(text.trim() || undefined);
  };
  const replace = (text: string) => {
    setWritten({ text, cursor: text.length });
    search(text);
    input.current?.focus();
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
        if (pointed === NONE) return; // the form searches
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
        setOpen(false);
        setChosen(NONE);
    }
  };

  return (
    <form
      role="search"
      aria-label="Search agents"
      className={classes.bar}
      onSubmit={(e) => {
        e.preventDefault();
        search();
      }}
    >
      <div className={classes.line}>
        <Combobox store={{ ...combobox, dropdownOpened: shown }} position="bottom-start" transitionProps={{ duration: 0 }} withinPortal={false} keepMounted={false} middlewares={{ flip: false, shift: true }} onOptionSubmit={(v) => accept(items[Number(v)])}>
          <Combobox.DropdownTarget>
            <TextInput
              ref={input}
              className={classes.input}
              classNames={{ input: "mono" }}
              role="combobox"
              aria-label="Search with KQL"
              aria-expanded={shown}
              aria-controls={shown ? listId : undefined}
              aria-autocomplete="list"
              aria-activedescendant={pointed === NONE ? undefined : optionId(pointed)}
              aria-describedby={fault ? faultId : undefined}
              aria-keyshortcuts="/"
              error={!!fault}
              autoComplete="off"
              autoCapitalize="off"
              autoCorrect="off"
              spellCheck={false}
              placeholder="Search with KQL, such as status: offline and tags: prod"
              leftSection={<IconSearch size={16} aria-hidden />}
              value={written.text}
              onChange={(e) => write({ text: e.currentTarget.value, cursor: e.currentTarget.selectionStart ?? e.currentTarget.value.length })}
              onSelect={(e) => {
                const cursor = e.currentTarget.selectionStart ?? 0;
                setWritten((old) => (old.cursor === cursor ? old : { ...old, cursor }));
              }}
              onClick={() => setOpen(true)}
              onBlur={() => setOpen(false)}
              onKeyDown={onKeyDown}
              rightSectionWidth={written.text ? 34 : 28}
              rightSection={written.text ? <CloseButton size="sm" aria-label="Clear the query" onClick={() => replace("")} /> : <kbd className={classes.key} aria-hidden>/</kbd>}
              rightSectionPointerEvents={written.text ? "all" : "none"}
            />
          </Combobox.DropdownTarget>
          <Combobox.Dropdown className={classes.dropdown}>
            <Combobox.Options id={listId} aria-label="Suggestions" className={classes.options} data-stale={!fresh || undefined}>
              {items.map((item, i) => (
                <Combobox.Option key={`${item.kind} ${item.text}`} value={String(i)} id={optionId(i)} selected={i === pointed} aria-selected={i === pointed} className={classes.option}>
                  <span className={classes.kind} data-kind={item.kind}>{kindWord[item.kind]}</span>
                  <span className={`mono ${classes.text}`}>{item.text.trim()}</span>
                  {item.description ? <span className={classes.description}>{item.description}</span> : null}
                </Combobox.Option>
              ))}
            </Combobox.Options>
            <div className={classes.keys} aria-hidden><kbd>↓</kbd> <kbd>↑</kbd> choose, <kbd>Tab</kbd> or <kbd>Enter</kbd> accept, <kbd>Esc</kbd> close</div>
          </Combobox.Dropdown>
        </Combobox>
        <Tooltip label="Search">
          <ActionIcon type="submit" size={36} variant={written.text.trim() === value ? "default" : "filled"} aria-label="Search"><IconSearch size={16} aria-hidden /></ActionIcon>
        </Tooltip>
        <Help onUse={replace} />
      </div>
      <div id={faultId}>{fault ? <QueryFault message={fault} /> : null}</div>
    </form>
  );
}

/** The error with a mark under its position, in a monospaced font so that the mark stays there. */
function QueryFault({ message }: { message: string }) {
  const { what, place } = faultOf(message);
  return (
    <div className={classes.fault} role="alert">
      <Text size="sm" fw={600} component="div">{what}</Text>
      {place ? <pre className={classes.place} tabIndex={0} aria-label="Where the query is wrong">{place}</pre> : null}
    </div>
  );
}

function Help({ onUse }: { onUse: (query: string) => void }) {
  const [opened, setOpened] = useState(false);
  return (
    <Popover opened={opened} onChange={setOpened} position="bottom-end" width={480} trapFocus returnFocus shadow="md" transitionProps={{ duration: 0 }}>
      <Popover.Target>
        <ActionIcon size={36} variant="default" aria-label="Help on queries" onClick={() => setOpened(!opened)}><IconHelp size={18} aria-hidden /></ActionIcon>
      </Popover.Target>
      <Popover.Dropdown className={classes.help} aria-label="Help on queries">
        <Text size="sm" fw={600}>Example queries</Text>
        <ul className={classes.examples}>
          {EXAMPLES.map(({ query, means }) => (
            <li key={query}>
              <UnstyledButton
                className={classes.example}
                onClick={() => {
                  setOpened(false);
                  onUse(query);
                }}
              >
                <code className="mono">{query}</code>
                <span>{means}</span>
              </UnstyledButton>
            </li>
          ))}
        </ul>
        <Text size="xs" c="dimmed">and binds tighter than or; parentheses group. Fields that end with .keyword match the whole value, case-sensitive; other text fields match words. Inside "quotes" * is not a wildcard.</Text>
      </Popover.Dropdown>
    </Popover>
  );
}

/** The slash focuses the bar, except where it can be typed. */
function useSlash(input: React.RefObject<HTMLInputElement | null>): void {
  useEffect(() => {
    const focus = (event: globalThis.KeyboardEvent) => {
      // On many keyboards the slash needs Shift.
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      const target = event.target instanceof Element ? event.target : null;
      if (target?.closest("input, textarea, select, [contenteditable=true], [role=dialog], [role=menu]")) return;
      event.preventDefault();
      input.current?.focus();
      input.current?.select();
    };
    window.addEventListener("keydown", focus);
    return () => window.removeEventListener("keydown", focus);
  }, [input]);
}
