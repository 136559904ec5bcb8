import { expect, test } from "vitest";
import { agent, details } from "~/testing/agent";
import type { Agent } from "~/api/types";
import { hourMinute } from "./time";
import { adviceFor, componentPhaseOf, phaseOf, runsWords, STEPS, STUCK_AFTER_MS } from "./phase";

const now = Date.parse("2026-01-02T12:00:00Z");
const started = "2026-01-02T11:59:00Z";

const cases: [name: string, a: Agent, kind: string, text: string | RegExp][] = [
  ["no upgrade", agent(), "none", ""],
  ["requested", agent({ upgrade_details: details("UPG_REQUESTED") }), "scheduled", "Waiting for the agent to start the upgrade"],
  ["requested of an absent host", agent({ status: "offline", upgrade_details: details("UPG_REQUESTED") }), "scheduled", "Upgrades when the agent returns"],
  ["scheduled", agent({ upgrade_details: details("UPG_SCHEDULED", { scheduled_at: "2026-01-02T12:12:00Z" }) }), "scheduled", /^Starts in 12 min/],
  ["download with figures", agent({ upgrade_details: details("UPG_DOWNLOADING", { download_percent: 42.7, download_rate: 12_000_000 }) }), "running", "Downloading 42 % at 12 MB/s"],
  ["download at its start", agent({ upgrade_details: details("UPG_DOWNLOADING") }), "running", "Downloading"],
  ["download of a stalled line", agent({ upgrade_details: details("UPG_DOWNLOADING", { download_percent: 5, download_rate: 0 }) }), "running", "Downloading 5 %"],
  ["unpack", agent({ upgrade_details: details("UPG_EXTRACTING") }), "running", "Unpacking"],
  ["switch", agent({ upgrade_details: details("UPG_REPLACING") }), "running", "Switching to the new version"],
  ["restart", agent({ upgrade_details: details("UPG_RESTARTING") }), "running", "Restarting"],
  ["watch", agent({ upgrade_details: details("UPG_WATCHING") }), "running", "Watching the new version"],
  ["rolled back", agent({ upgrade_status: "rolled_back", upgrade_details: details("UPG_ROLLBACK", { reason: "it crashed 3 times", reason_code: "crash_loop" }) }), "rolled_back", "Rolled back: it crashed 3 times"],
  ["failed", agent({ upgrade_status: "failed", upgrade_details: details("UPG_FAILED", { failed_state: "UPG_DOWNLOADING", error_msg: "404" }) }), "failed", "Failed while downloading: 404"],
  ["failed without a word", agent({ upgrade_details: details("UPG_FAILED") }), "failed", "Upgrade failed"],
  ["an agent that reports no details", agent({ upgrade_status: "started" }), "running", "Upgrading"],
  ["failed, without details", agent({ upgrade_status: "failed" }), "failed", "Upgrade failed"],
  ["rolled back, without details", agent({ upgrade_status: "rolled_back" }), "rolled_back", "Rolled back"],
  ["a phase of a newer agent", agent({ upgrade_details: details("UPG_DREAMING" as "UPG_WATCHING") }), "running", "In phase UPG_DREAMING"],
];

test.each(cases)("%s", (_, a, kind, text) => {
  const phase = phaseOf(a, now);
  expect(phase.kind).toBe(kind);
  if (phase.kind !== "none") expect(phase.text).toMatch(text instanceof RegExp ? text : new RegExp(`^${text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`));
});

test("the upgrade of a component has its agent's words", () => {
  const web = (d?: Parameters<typeof details>, upgrade_status?: "started" | "rolled_back") =>
    componentPhaseOf(agent(), { id: "web", type: "component", status: "HEALTHY", message: "", upgrade_status, upgrade_details: d && details(...d) }, now);
  expect(web()).toEqual({ kind: "none" });
  expect(web(["UPG_WATCHING", { phase: "VERIFYING" }])).toMatchObject({ kind: "running", target: "1.1.0", text: "Verifying that it is healthy" });
  expect(web(["UPG_RESTARTING", { phase: "MUTATING", reason: "migration 2 of 3, version 2.4.0" }])).toMatchObject({ kind: "running", text: "Installing: migration 2 of 3, version 2.4.0" });
  expect(web(["UPG_WATCHING", { phase: "VERIFYING", reason: "observed for another 5s" }])).toMatchObject({ text: "Verifying that it is healthy" });
  expect(web(["UPG_DOWNLOADING", { phase: "PREPARING", download_percent: 5 }])).toMatchObject({ kind: "running", text: "Downloading 5 %" });
  expect(web(["UPG_FAILED", { error_msg: "no answer" }])).toMatchObject({ kind: "failed", text: "Upgrade failed: no answer" });
  expect(web(["UPG_ROLLBACK", { error_msg: "no answer" }], "started")).toMatchObject({ kind: "running", target: "1.1.0", text: "Rolling back", warning: "No answer." });
  expect(web(["UPG_FAILED", { error_msg: "no answer" }], "rolled_back")).toMatchObject({ kind: "rolled_back", text: "Rolled back: no answer", reason: "no answer" });
});

test("a retry is shown with its attempt, its time and the error", () => {
  const at = "2026-01-02T12:05:00Z";
  const retry = (meta: object) => phaseOf(agent({ upgrade_started_at: started, upgrade_details: details("UPG_SCHEDULED", { scheduled_at: at, retry_error_msg: "no route to host", ...meta }) }), now);
  expect(retry({ retry_attempt: 2, retry_limit: 6 })).toMatchObject({ kind: "scheduled", text: `Retry 2 of 6 at ${hourMinute(at)}`, warning: "No route to host." });
  expect(retry({ retry_attempt: 2 })).toMatchObject({ text: `Retry 2 at ${hourMinute(at)}` });
  expect(retry({})).toMatchObject({ text: `Retry at ${hourMinute(at)}` });
  expect(retry({ scheduled_at: undefined })).toMatchObject({ text: "Retry" });
});

test("the running version is named only after it has checked in", () => {
  const words = (kind: "rolled_back" | "failed", version: string) => runsWords(agent({ version }), { kind, target: "1.1.0" });
  expect(words("rolled_back", "1.0.0")).toBe("The host runs 1.0.0.");
  expect(words("rolled_back", "1.1.0")).toBe("The older version has not checked in yet.");
  expect(words("failed", "1.1.0")).toBe("The host runs 1.1.0.");
});

test("a scheduled upgrade has not started before its time", () => {
  const later = new Date(now + 3 * 3_600_000).toISOString();
  expect(phaseOf(agent({ upgrade_status: "started", upgrade_started_at: later }), now)).toMatchObject({ kind: "scheduled", text: expect.stringMatching(/^Starts in 3 hr/) });
});

test("a rollback is not called an upgrade", () => {
  expect(phaseOf(agent({ upgrade_status: "started", upgrade_rollback: true }), now)).toMatchObject({ kind: "running", text: "Rolling back" });
});

test("a retried download is shown with the error and the time limit", () => {
  const phase = phaseOf(agent({ upgrade_details: details("UPG_DOWNLOADING", { retry_error_msg: "connection refused", retry_until: "2026-01-02T14:00:00Z" }) }), now);
  expect(phase).toMatchObject({ warning: expect.stringMatching(/^Connection refused\. Retrying, giving up in 2 hr/) });
});

test("a percentage out of range is clamped", () => {
  expect(phaseOf(agent({ upgrade_details: details("UPG_DOWNLOADING", { download_percent: 130 }) }), now)).toMatchObject({ percent: 100 });
  expect(phaseOf(agent({ upgrade_details: details("UPG_DOWNLOADING", { download_percent: -2 }) }), now)).toMatchObject({ percent: 0 });
});

test("only a started upgrade can be stuck, never a scheduled one", () => {
  const long = new Date(now - STUCK_AFTER_MS - 1).toISOString();
  expect(phaseOf(agent({ upgrade_started_at: long, upgrade_details: details("UPG_EXTRACTING") }), now)).toHaveProperty("warning", expect.stringMatching(/may be stuck/));
  expect(phaseOf(agent({ upgrade_started_at: started, upgrade_details: details("UPG_EXTRACTING") }), now)).toHaveProperty("warning", undefined);
  expect(phaseOf(agent({ upgrade_started_at: long, upgrade_details: details("UPG_SCHEDULED", { scheduled_at: "2026-01-03T12:00:00Z" }) }), now)).not.toHaveProperty("warning");
});

test("every reason code has its own advice, an unknown one a general one", () => {
  const codes = ["crash_loop", "agent_failed", "component_failed", "control_lost", "wrong_version", "not_started", "check_failed", "checkin_lost", "manual"];
  const texts = codes.map(adviceFor);
  expect(new Set(texts).size).toBe(codes.length);
  expect(texts).not.toContain(adviceFor("something_new"));
  expect(adviceFor(undefined)).toBe(adviceFor("something_new"));
});

test("the steps are the phases of a successful upgrade, each once", () => {
  expect(STEPS.map((s) => s.state)).toEqual(["UPG_REQUESTED", "UPG_DOWNLOADING", "UPG_EXTRACTING", "UPG_REPLACING", "UPG_RESTARTING", "UPG_WATCHING"]);
});
