import { expect, test } from "vitest";
import { eventsText, eventWord, letterText, whyNotWebhook } from "./webhook";

test("events have words, and a long list is cut", () => {
  expect(eventWord("rollout.rollback_initiated")).toBe("Rollback initiated");
  expect(eventsText({})).toBe("All except progress");
  expect(eventsText({ events: ["rollout.paused", "incident.changed"] })).toBe("rollout.paused, incident.changed");
  expect(eventsText({ events: ["a", "b", "c", "d"] })).toBe("a, b and 2 more");
});

test("a letter is its sentence, or its type", () => {
  const letter = { id: "", webhook_id: "", type: "rollout.paused", error: "", attempts: 1, at: "" };
  expect(letterText({ ...letter, body: { text: "ann paused web" } })).toBe("ann paused web");
  expect(letterText({ ...letter, body: {} })).toBe("rollout.paused");
});

test("a webhook needs a name and a URL", () => {
  expect(whyNotWebhook("", "https://x")).toContain("name");
  expect(whyNotWebhook("chat", "chat.example.com")).toContain("URL");
  expect(whyNotWebhook("chat", "https://chat.example.com/x")).toBeNull();
});
