/** The events that webhooks can send, in groups, and what a receiver gets. */
import type { DeadLetter, Webhook } from "~/api/types";

/** As in the server's check of a new webhook, which refuses others. */
export const WEBHOOK_EVENTS: readonly { group: string; events: readonly string[] }[] = [
  {
    group: "Rollouts",
    events: [
      "rollout.created",
      "rollout.started",
      "rollout.paused",
      "rollout.resumed",
      "rollout.completed",
      "rollout.failed",
      "rollout.cancelled",
      "rollout.rollback_initiated",
      "rollout.rollback_completed",
      "rollout.progress",
    ],
  },
  {
    group: "Groups of rollouts",
    events: [
      "group.created",
      "group.started",
      "group.paused",
      "group.resumed",
      "group.completed",
      "group.partial",
      "group.failed",
      "group.cancelled",
      "group.rollback_initiated",
      "group.rollback_completed",
      "group.progress",
    ],
  },
  { group: "Incidents", events: ["incident.changed"] },
];

/** eventWord is "Paused" for rollout.paused. */
export function eventWord(event: string): string {
  const word = event.slice(event.indexOf(".") + 1).replaceAll("_", " ");
  return word.charAt(0).toUpperCase() + word.slice(1);
}

export function eventsText(hook: Pick<Webhook, "events">): string {
  const events = hook.events ?? [];
  if (events.length === 0) return "All except progress";
  return events.length <= 3 ? events.join(", ") : `${events.slice(0, 2).join(", ")} and ${events.length - 2} more`;
}

/** letterText is the sentence of a notification. */
export const letterText = (l: DeadLetter): string => (typeof l.body.text === "string" ? l.body.text : l.type);

export function whyNotWebhook(name: string, url: string): string | null {
  if (name.trim() === "") return "Enter a name first.";
  if (!/^https?:\/\/\S+$/.test(url.trim())) return "Enter the receiver's URL, which begins with https:// or http://.";
  return null;
}
