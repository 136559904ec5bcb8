/** The settings of a server. */
import type { Setting } from "~/api/types";
import { matchesWords } from "./adminSearch";

export const originWord: Record<Setting["origin"], string> = {
  default: "Default",
  file: "Configuration file",
  environment: "Environment",
  flag: "Command line",
};

/** filterSettings returns the settings with each word of q, if asked only those that differ from their defaults. */
export const filterSettings = (settings: readonly Setting[], q: string | undefined, onlyChanged: boolean): Setting[] =>
  settings.filter((s) => (!onlyChanged || s.origin !== "default") && matchesWords(q, [s.key, s.value, s.description, originWord[s.origin]]));

/** valueText writes large sizes and nothing at all so that they can be read. */
export function valueText(s: Setting): string {
  if (s.value === "") return "";
  return /_bytes$/.test(s.key) && /^\d+$/.test(s.value) ? `${s.value} (${Math.round(Number(s.value) / 2 ** 20).toLocaleString()} MiB)` : s.value;
}
