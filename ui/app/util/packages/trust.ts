/** What hosts trust: what expires when, what is missing, and the commands for it. */
import type { Trust, TrustRole } from "~/api/types";
import type { Tone } from "~/util/state";
import { duration } from "~/util/time";

const DAY_MS = 86_400_000;
/** Enough time to bring people with keys together. */
export const SOON_DAYS = 30;

export interface Expiry {
  tone: Tone;
  text: string;
}

export function expiryOf(at: string, now: number): Expiry {
  const left = Date.parse(at) - now;
  if (left <= 0) return { tone: "bad", text: "Expired" };
  const text = left < 2 * DAY_MS ? `Expires in ${duration(left)}` : `Expires in ${Math.floor(left / DAY_MS).toLocaleString()} days`;
  return { tone: left <= SOON_DAYS * DAY_MS ? "wait" : "ok", text };
}

/** The server renews its own files long before they expire, so only an expired one is a problem. */
export function onlineExpiryOf(at: string, now: number): Expiry {
  const e = expiryOf(at, now);
  return e.tone === "wait" ? { ...e, tone: "ok" } : e;
}

/** thresholdText says how many must sign, and how many have. */
export function thresholdText(role: TrustRole): string {
  const signed = role.keys.filter((k) => k.signed).length;
  return `${role.threshold} of ${role.keys.length} must sign, ${signed} ${signed === 1 ? "has" : "have"} signed`;
}

export interface Recipe {
  title: string;
  text: string;
}

/** recipesFor returns the commands for the trust in use. Private keys never leave the machines of their owners, so these run there. */
export function recipesFor(trust: Trust): Recipe[] {
  if (!trust.published) {
    return [
      {
        title: "Create the publishers' keys and publish the first root",
        text: "muster package keys init --dir release --root-keys 3 --root-threshold 2 --targets-keys 2 --targets-threshold 2\nmuster package keys publish release/1.root.json",
      },
    ];
  }
  const next = (trust.targets?.version ?? 0) + 1;
  const many = (trust.targets?.threshold ?? 1) > 1;
  const second = `muster package keys sign release/${next}.targets.json --key SECOND.key\nmuster package keys publish release/${next}.targets.json`;
  const with2 = (first: string) => (many ? `${first}\n${second}` : first);
  return [
    {
      title: many ? `Publish a version: ${trust.targets!.threshold} people sign` : "Publish a version",
      text: with2("muster package push muster-agent-VERSION-linux-amd64.tar.gz --targets-key FIRST.key"),
    },
    { title: "Renew the targets before they expire", text: with2("muster package keys renew --targets-key FIRST.key") },
    {
      title: trust.floor ? `Raise the floor above ${trust.floor}` : "Set a floor: hosts refuse lower versions",
      text: with2("muster package floor VERSION --targets-key FIRST.key"),
    },
    { title: "Replace a targets key", text: "muster package keys rotate --root release --replace targets=OLD:NEW.pub --key root-1.key --key root-2.key" },
    { title: "Check what is published", text: "muster package keys show --server" },
  ];
}
