import { describe, expect, test } from "vitest";
import { rollout } from "~/testing/rollout";
import { batchNow, boardCommands, commandLabel, commandText, inFlightWords, letGoWords, putBackOf } from "./commandText";

const counts = { pending: 1_800, held: 3, offered: 2, upgrading: 1, verifying: 4, succeeded: 20, failed: 2, rolled_back: 5 };

describe("the commands of the board", () => {
  const commands = [
    { name: "pause", allowed: true, primary: true },
    { name: "start", allowed: false, reason: "It has been started already." },
    { name: "skip", allowed: true },
    { name: "delete", allowed: false, reason: "It is running." },
  ];

  test("start and delete are for drafts, the others for what was started", () => {
    expect(boardCommands(rollout({ commands })).map((c) => c.name)).toEqual(["pause", "skip"]);
    expect(boardCommands(rollout({ state: "draft", commands })).map((c) => c.name)).toEqual(["start", "delete"]);
    expect(boardCommands(rollout())).toEqual([]);
  });

  test("failed hosts are skipped only if there are some", () => {
    expect(boardCommands(rollout({ commands }))[1]).toMatchObject({ allowed: false, reason: expect.stringMatching(/^No host has failed/) });
    expect(boardCommands(rollout({ commands, counts: { rolled_back: 1 } }))[1]).toMatchObject({ allowed: true });
  });
});

describe("the texts", () => {
  const r = rollout({ counts });

  test("every command asks a question and answers with a verb", () => {
    for (const name of Object.keys(commandLabel)) {
      const text = commandText(name, r);
      expect(text.title, name).toMatch(/^[A-Z].*\?$/);
      expect(text.confirm, name).toMatch(/^(Approve|Adjust|Resume|Pause|Promote|Force|Cancel|Retry|Skip|Roll|Delete|Withdraw) /);
      expect(text.text, name).toMatch(/^[A-Z1-9].*\.$/);
      expect(text.done, name).not.toBe("");
    }
  });

  test("what is hard to undo is typed, with the number of hosts", () => {
    expect(commandText("force", r).typed).toBe("force 1,803 hosts");
    expect(commandText("rollback_all", r).typed).toBe("roll back 27 hosts");
    expect(commandText("rollback_failed", r).typed).toBe("roll back 2 hosts");
    expect(commandText("pause", r).typed).toBeUndefined();
  });

  test("a retry includes hosts that could not be given the version", () =>
    expect(commandText("retry", rollout({ counts: { failed: 1, skipped: 4, refused: 3 } })).confirm).toBe("Retry 4 hosts"));

  test("a rollback of all includes what is under way", () => expect(putBackOf(r)).toBe(27));

  test("a pause names its batch", () => {
    const batch = { kind: "regular" as const, ring: 0, counts: r.counts };
    const batches = [
      { ...batch, index: 0, cleared_at: "2026-01-02T10:00:00Z" },
      { ...batch, index: 1 },
    ];
    expect(commandText("pause", rollout({ batches })).confirm).toBe("Pause after batch 2");
    expect(batchNow(rollout({ batches: [batches[0]!] }))).toBe(1);
  });

  test("a pause that was asked for is withdrawn", () => expect(commandText("resume", r).confirm).toBe("Withdraw the pause"));

  test("hosts under way", () => {
    expect(inFlightWords(r)).toBe("2 orders that no host has begun are withdrawn. 5 upgrades under way still end.");
    expect(inFlightWords(rollout())).toBe("No upgrade is under way.");
  });

  test("a cancel at once waits for no host", () => {
    expect(commandText("cancel_now", r)).toMatchObject({
      title: "Cancel “Spring” at once?",
      text: expect.stringMatching(
        /^1,803 hosts keep their version\. 2 orders that no host has begun are withdrawn\. It does not wait for the 5 hosts under way/,
      ),
    });
    expect(letGoWords(rollout({ counts: { verifying: 1 } }))).toBe("It does not wait for the 1 host under way, and will not say how its upgrade ends.");
    expect(commandText("cancel_now", rollout({ state: "cancelling", counts: { upgrading: 2 } })).text).toMatch(/^It does not wait for the 2 hosts/);
    expect(letGoWords(rollout())).toBe("No upgrade is under way.");
  });

  test("a command of a newer server has its own name", () => expect(commandText("hold_back", r).title).toBe("Hold back “Spring”?"));
});
