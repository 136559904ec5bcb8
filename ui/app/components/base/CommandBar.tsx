/** The commands of an object: the one that its state asks for as a button, the others in a menu, with the reasons of the server. */
import { Button, Menu } from "@mantine/core";
import { IconChevronDown } from "@tabler/icons-react";
import type { Command } from "~/api/types";
import { withoutIds } from "~/util/prose";
import classes from "./CommandBar.module.css";

interface Props {
  commands: readonly Command[] | undefined;
  /** The words of each command; a command without words is not shown. */
  words: Record<string, string>;
  onCommand: (command: Command) => void;
  /** Commands that are buttons although the state does not ask for them. */
  shown?: readonly string[];
}

export function CommandBar({ commands = [], words, onCommand, shown = [] }: Props) {
  const known = commands.filter((c) => words[c.name]);
  const primary = known.find((c) => c.primary && c.allowed);
  const buttons = known.filter((c) => c !== primary && c.allowed && shown.includes(c.name));
  const more = known.filter((c) => c !== primary && !buttons.includes(c)).sort((a, b) => rank(a) - rank(b));
  return (
    <div className={classes.bar}>
      {more.length > 0 ? (
        <Menu position="bottom-end" width={320}>
          <Menu.Target>
            <Button variant="default" rightSection={<IconChevronDown size={14} aria-hidden />}>
              More
            </Button>
          </Menu.Target>
          <Menu.Dropdown className={classes.menu}>
            {more.map((c) => (
              <Menu.Item
                key={c.name}
                className={classes.item}
                data-refused={c.allowed ? undefined : true}
                data-danger={c.danger && c.allowed ? true : undefined}
                closeMenuOnClick={c.allowed}
                onClick={() => c.allowed && onCommand(c)}
              >
                {words[c.name]}
                {c.allowed ? null : (
                  <span className={classes.reason}>
                    <span className="sr-only">Not possible now: </span>
                    {c.reason === undefined ? null : withoutIds(c.reason)}
                  </span>
                )}
              </Menu.Item>
            ))}
          </Menu.Dropdown>
        </Menu>
      ) : null}
      {buttons.map((c) => (
        <Button key={c.name} {...lookOf(c, false)} onClick={() => onCommand(c)}>
          {words[c.name]}
        </Button>
      ))}
      {primary ? (
        <Button {...lookOf(primary, true)} onClick={() => onCommand(primary)}>
          {words[primary.name]}
        </Button>
      ) : null}
    </div>
  );
}

/** In the menu: what is possible first, what is dangerous last. */
const rank = (c: Command) => (c.danger ? 2 : 0) + (c.allowed ? 0 : 1);

/** A dangerous command is a red outline, even if the state asks for it. */
const lookOf = (c: Command, primary: boolean) => (c.danger ? { variant: "outline", color: "red" } : { variant: primary ? "filled" : "default" });
