/** How long hosts watch a new version, for previews. */
export const WATCH_TEXT = "Hosts watch a new version for ten minutes by default; their upgrades are done after that.";

/** The same for a component. */
export const componentWatchText = (name: string): string => `Hosts observe ${name} for a minute by default, and put the earlier version back if it fails.`;
