/** Sentences of the server as pages show them: without ids that a link stands for, and with commands set apart. */
import { closed } from "./words";

const UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
/** Ids of rollouts and actions: base 32, with the parts that a rollout adds to those of its actions. */
const LONG_ID = "[a-z2-7]{24,27}(?:-[a-z0-9]+)*";

const inBrackets = new RegExp(`\\s*\\((?:action )?(?:${UUID}|${LONG_ID}|rollout-[\\w-]+)\\)`, "g");
const byAction = new RegExp(`\\s+by action (?:${UUID}|${LONG_ID})`, "g");

/** withoutIds removes ids that name a rollout or an action beside its name. */
export const withoutIds = (text: string): string => text.replace(inBrackets, "").replace(byAction, "");

const withCommand = /\s+with `muster [^`]*`/g;

/** withoutCommands removes commands of the command line that the page's own links and buttons stand for. */
export const withoutCommands = (text: string): string => closed(text.replace(withCommand, ""));

export interface Piece {
  text: string;
  code: boolean;
}

/** pieces splits a text at its `backquotes`. */
export function pieces(text: string): Piece[] {
  return text
    .split("`")
    .map((part, i) => ({ text: part, code: i % 2 === 1 }))
    .filter((p) => p.text !== "");
}
