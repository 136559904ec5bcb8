import { expect, it } from "vitest";
import { upgradeWords } from "./upgradeWords";

const now = { stage: false, later: false };

it("asks about the selection, and confirms what the preview counts", () => {
  expect(upgradeWords({ form: now, version: "2.4.1", back: false, count: 1800, will: 1750 })).toEqual({
    verb: "upgrade",
    does: "be upgraded",
    title: "Upgrade 1,800 hosts to 2.4.1?",
    confirm: "Upgrade 1,750 hosts",
    done: "Upgrading 1,750 hosts to 2.4.1",
  });
});

it("names the only host, and the component", () => {
  const w = upgradeWords({ form: now, version: "2.4.0", component: "web", back: true, host: "web-01", count: 1 });
  expect([w.title, w.confirm, w.done]).toEqual(["Roll back web on web-01 to 2.4.0?", "Roll back web on web-01", "Rolling back web on web-01 to 2.4.0"]);
});

it("says what is scheduled or staged", () => {
  expect(upgradeWords({ form: { ...now, later: true }, version: "2.4.1", back: false, count: 2 })).toMatchObject({
    confirm: "Schedule for 2 hosts",
    done: "Upgrade of 2 hosts to 2.4.1 is scheduled",
  });
  expect(upgradeWords({ form: { ...now, stage: true }, version: "2.4.1", back: false, count: 2 })).toMatchObject({
    title: "Stage 2.4.1 on 2 hosts?",
    confirm: "Stage on 2 hosts",
  });
});
