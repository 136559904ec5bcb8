import { expect, test } from "vitest";
import type { Watch } from "~/api/types";
import { diagnosisTitle, watchedAgentText } from "./watch";

const watch = (agent: Watch["agent"]): Watch => ({
  from: "1.0.0",
  to: "1.1.0",
  stage: "watching",
  agent,
  at: "2026-01-02T12:00:00Z",
  received_at: "2026-01-02T12:00:00Z",
});

test.each([
  [{ alive: true, state: "healthy", crashes: 0 }, "running, healthy"],
  [{ alive: true, crashes: 1 }, "running, but it does not answer; crashed 1 time"],
  [{ alive: false, crashes: 3 }, "not running; crashed 3 times"],
] as [Watch["agent"], string][])("%o is %s", (agent, want) => {
  expect(watchedAgentText(watch(agent))).toBe(want);
});

test("every diagnosis has a title, and one of a newer server shows its code", () => {
  const codes = ["agent_down", "agent_cut_off", "no_sign", "rolled_back", "rollback_failed"] as const;
  expect(new Set(codes.map(diagnosisTitle)).size).toBe(codes.length);
  expect(diagnosisTitle("asleep" as "no_sign")).toBe("asleep");
});
