import { expect, test } from "vitest";
import { component } from "~/testing/agent";
import { healthText, keptOf, runsQuery } from "./component";

test("the version to go back to is the last healthy one, else the newest that is kept", () => {
  expect(keptOf(component({ version: "3.0.0", rollbacks: ["1.0.0", "2.0.0", "3.0.0"] }))).toEqual(["2.0.0", "1.0.0"]);
  expect(keptOf(component({ version: "3.0.0", rollbacks: ["1.0.0", "2.0.0"], last_healthy_version: "1.0.0" }))).toEqual(["1.0.0", "2.0.0"]);
  expect(keptOf(component({ version: undefined, rollbacks: undefined }))).toEqual([]);
});

test("the health rules of a policy are one line", () => {
  expect(healthText({ name: "web", runtime: "systemd" })).toBe("the agent's defaults");
  expect(
    healthText({ name: "web", runtime: "systemd", health: { wait_seconds: 300, max_restarts: 1, checks: [{ name: "answers", tcp: "127.0.0.1:80" }] } }),
  ).toBe("300 s, at most 1 restart, answers: 127.0.0.1:80");
});

test("the query of a component quotes names that KQL would read otherwise", () => {
  expect(runsQuery("web-server")).toBe("components.name: web-server");
  expect(runsQuery("or (web)")).toBe('components.name: "or (web)"');
  expect(runsQuery("web", "2.5.0")).toBe('components.name: web and components.version: "2.5.0"');
});
