import { expect, test } from "vitest";
import { changesOf, dataOf, hostBeside, recordedChanges, rolloutBeside, subjectOf, textOfEntry } from "./audit";

test("an entry leads to the page of what it is about", () => {
  expect(subjectOf({ verb: "rollout.pause", subject: "r1" })).toEqual({ page: "rollout", id: "r1" });
  expect(subjectOf({ verb: "agent.upgrade", subject: "7a3rqb2fovgrpj3owk47qii2eo" })).toEqual({ page: "actions", id: "7a3rqb2fovgrpj3owk47qii2eo" });
  expect(subjectOf({ verb: "agent.describe", subject: "e2cf4784-b798-4b79-8477-af4069dc62fc" })).toEqual({
    page: "agent",
    id: "e2cf4784-b798-4b79-8477-af4069dc62fc",
  });
  expect(subjectOf({ verb: "server.forget", subject: "s" })).toBeUndefined();
});

test("a change names the fields that differ", () => {
  expect(
    changesOf({ revision: 1, name: "Web", components: [{ name: "web" }] }, { revision: 2, name: "Web", components: [{ name: "web" }], timeout: 0 }),
  ).toEqual([
    { field: "revision", before: "1", after: "2" },
    { field: "timeout", before: undefined, after: "0" },
  ]);
});

test("recorded changes are shown as such, and not as what else was recorded", () => {
  const data = {
    revision: 2,
    changes: [
      { field: "ssl.key", hidden: true },
      { field: "name", before: "a", after: "b" },
    ],
  };
  expect(recordedChanges({ data })).toEqual(data.changes);
  expect(recordedChanges({ data: { changed: ["spec.agent"] } })).toEqual([]);
  expect(recordedChanges({})).toEqual([]);
  expect(dataOf({ data })).toEqual([["revision", "2"]]);
  expect(changesOf({ revision: 1 }, data)).toEqual([{ field: "revision", before: "1", after: "2" }]);
});

test("long lists are counted", () => {
  expect(dataOf({ data: { agents: ["1", "2", "3", "4", "5", "6"], count: 6, agent_id: "" } })).toEqual([
    ["agents", "6 (1, 2, 3, 4, 5 …)"],
    ["count", "6"],
  ]);
});

test("texts leave out who did it, and keep the names of hosts", () => {
  expect(textOfEntry({ actor: "ann", text: "ann created the policy Web" })).toBe("Created the policy Web.");
  expect(textOfEntry({ actor: "muster", text: "web-01 runs 2.5.0, and does not become healthy" })).toBe("web-01 runs 2.5.0, and does not become healthy.");
  expect(textOfEntry({ actor: "muster", text: "rollout “CI” (up3rbscs2ll5n7rb5v3ra3trxh) has ended: failed" })).toBe("Rollout “CI” has ended: failed.");
});

test("an agent is a link, not an id", () => {
  const e = { actor: "ann", subject: "x", text: "ann requested the diagnostics of agent e2cf4784-b798-4b79-8477-af4069dc62fc" };
  expect(textOfEntry(e)).toBe("Requested the diagnostics of a host.");
  expect(hostBeside(e)).toBe("e2cf4784-b798-4b79-8477-af4069dc62fc");
  expect(hostBeside({ ...e, text: "web-01 is unwell", data: { agent_id: "a1" } })).toBe("a1");
  expect(hostBeside({ ...e, text: "x", data: { agent_id: "" } })).toBeUndefined();
});

test("a step names its rollout, unless the text does", () => {
  const names = new Map([["r1", "Spring"]]);
  expect(rolloutBeside({ verb: "rollout.step", subject: "r1", text: "running, batch 1" }, names)).toEqual({ id: "r1", name: "Spring" });
  expect(rolloutBeside({ verb: "rollout.create", subject: "r1", text: "created rollout “Spring”" }, names)).toBeUndefined();
  expect(rolloutBeside({ verb: "policy.update", subject: "r1", text: "x" }, names)).toBeUndefined();
});
