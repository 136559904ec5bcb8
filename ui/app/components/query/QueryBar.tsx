import { ActionIcon, CloseButton, Popover, Text, UnstyledButton } from "@mantine/core";
import { IconHelp, IconSearch } from "@tabler/icons-react";
import { useEffect, useId, useRef, useState } from "react";
import { EXAMPLES, faultOf } from "~/util/kql";
import { KqlInput } from "./KqlInput";
import classes from "./QueryBar.module.css";

interface Props {
  /** The current query; undefined if there is none. */
  value?: string;
  /** The server's error for it. */
  fault?: string;
  onSearch: (query: string | undefined) => void;
}

/** The search bar for KQL. The text is a draft until Enter: an incomplete query is mostly invalid. */
export function QueryBar({ value = "", fault, onSearch }: Props) {
  const input = useRef<HTMLInputElement>(null);
  const [text, setText] = useState(value);
  const faultId = useId();

  // Back, forward and links change the query; the draft follows.
  const [searched, setSearched] = useState(value);
  if (searched !== value) {
    setSearched(value);
    setText(value);
  }

  useSlash(input);

  const search = (query = text) => onSearch(query.trim() || undefined);
  const replace = (query: string) => {
    setText(query);
    search(query);
    input.current?.focus();
  };
  const changed = text.trim() !== value.trim();

  return (
    <form
      role="search"
      aria-label="Search hosts"
      className={classes.bar}
      onSubmit={(e) => {
        e.preventDefault();
        search();
      }}
    >
      <div className={classes.line}>
        <KqlInput
          inputRef={input}
          className={classes.input}
          text={text}
          onText={setText}
          aria-label="Search hosts"
          aria-describedby={fault ? faultId : undefined}
          aria-keyshortcuts="/"
          error={!!fault}
          placeholder="Search hosts, or write a query: health: offline and tag: prod"
          leftSection={<IconSearch size={16} aria-hidden />}
          rightSectionWidth={text ? (changed ? 96 : 34) : 28}
          rightSection={
            text ? (
              <span className={classes.end}>
                {changed ? (
                  <kbd className={classes.key} aria-hidden>
                    Enter
                  </kbd>
                ) : null}
                <CloseButton size="sm" aria-label="Clear the query" onClick={() => replace("")} />
              </span>
            ) : (
              <kbd className={classes.key} aria-hidden>
                /
              </kbd>
            )
          }
          rightSectionPointerEvents={text ? "all" : "none"}
        />
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
      <Text size="sm" fw={600} component="div">
        {what}
      </Text>
      {place ? (
        <pre className={classes.place} tabIndex={0} role="group" aria-label="Where the query is wrong">
          {place}
        </pre>
      ) : null}
    </div>
  );
}

function Help({ onUse }: { onUse: (query: string) => void }) {
  const [opened, setOpened] = useState(false);
  return (
    <Popover
      opened={opened}
      onChange={setOpened}
      position="bottom-end"
      width={480}
      withinPortal={false}
      trapFocus
      returnFocus
      shadow="md"
      transitionProps={{ duration: 0 }}
    >
      <Popover.Target>
        <ActionIcon size={30} variant="default" aria-label="Help on queries" onClick={() => setOpened(!opened)}>
          <IconHelp size={18} aria-hidden />
        </ActionIcon>
      </Popover.Target>
      <Popover.Dropdown className={classes.help} aria-label="Help on queries">
        <Text size="sm" fw={600}>
          Example queries
        </Text>
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
        <Text size="xs" c="dimmed">
          Words without an operator are parts of host names. and binds tighter than or, and parentheses group. host, version, policy, tag, os, site, health and
          progress are short names of fields. Inside "quotes" * is not a wildcard.
        </Text>
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
